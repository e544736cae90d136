// The loop of {% for %}: the variable `loop`, and how items come.
#pragma once

#include <optional>
#include <vector>

#include "text/jinja/interpreter.h"

namespace hearth::jinja {

// Gives the items that pass the loop's "if", each looked at when it is asked for.
struct ConditionIterator : IteratorObject {
  ConditionIterator(Variables& its_variables, Evaluator& its_evaluator, const ForStmt& its_stmt,
                    Frame& its_frame, IteratorObject& its_items)
      : variables(its_variables),
        evaluator(its_evaluator),
        stmt(its_stmt),
        frame(its_frame),
        items(its_items) {}
  std::optional<Value> Next(Runtime& runtime) override;
  Variables& variables;
  Evaluator& evaluator;
  const ForStmt& stmt;
  Frame& frame;
  IteratorObject& items;
};

class LoopObject;

// What reads the variable `loop` gets: the items that the loop has not reached yet, each with the
// loop, which moves on.
struct RestOfLoop : IteratorObject {
  explicit RestOfLoop(LoopObject& its_loop) : loop(its_loop) {}
  std::optional<Value> Next(Runtime& runtime) override;
  LoopObject& loop;
};

class LoopObject : public CustomObject {
 public:
  // `frame`: the one around the loop. `level`: how deep a recursive loop is, from 0.
  LoopObject(Interpreter& interpreter, const ForStmt& stmt, Frame& frame, const Value& source,
             int level)
      : interpreter_(interpreter),
        stmt_(stmt),
        frame_(frame),
        source_(source),
        level_(level),
        rest_(*this) {}

  void Begin(IteratorObject* items) { items_ = items; }
  // The next item; nothing at the end.
  std::optional<Value> Advance(Runtime& runtime);

  std::string TypeName() const override { return "LoopContext"; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override;
  std::optional<Value> Attribute(Runtime& runtime, const Text& name) override;
  bool IsTrue(Runtime& runtime) override { return *Length(runtime) > 0; }
  std::optional<Int> Length(Runtime& runtime) override;
  IteratorObject* Iterator() override;
  Text Repr(Runtime& runtime) override;

  Value Cycle(const Arguments& arguments) const;
  Value Changed(Runtime& runtime, const Arguments& arguments);

 private:
  // The item after this one, read ahead; nothing at the end.
  const std::optional<Value>& PeekNext(Runtime& runtime);
  std::optional<Value> Neighbour(Runtime& runtime, const std::string& name);
  std::optional<Value> Method(Runtime& runtime, const std::string& name);

  Interpreter& interpreter_;
  const ForStmt& stmt_;
  Frame& frame_;
  const Value source_;
  const int level_;
  IteratorObject* items_ = nullptr;
  RestOfLoop rest_;
  Int index0_ = -1;
  std::optional<Int> length_;
  std::optional<Value> before_, current_, after_;
  Value last_changed_;  // missing before the first call of changed()
};

}  // namespace hearth::jinja
