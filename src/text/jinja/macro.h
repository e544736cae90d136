// {% macro %}, the caller of {% call %} and blocks as values.
#pragma once

#include <string>
#include <utility>

#include "text/jinja/interpreter.h"

namespace hearth::jinja {

class MacroObject : public CustomObject {
 public:
  // `frame`: where it was defined. A caller has no name.
  MacroObject(Interpreter& interpreter, const MacroBody& macro, Frame& frame, std::string name)
      : interpreter_(interpreter), macro_(macro), frame_(frame), name_(std::move(name)) {}

  std::string TypeName() const override { return "Macro"; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override;
  std::optional<Value> Attribute(Runtime& runtime, const Text& name) override;
  Text Repr(Runtime& runtime) override;

 private:
  Interpreter& interpreter_;
  const MacroBody& macro_;
  Frame& frame_;
  const std::string name_;
};

// A block, which a call renders once more.
class BlockObject : public CustomObject {
 public:
  BlockObject(Interpreter& interpreter, const BlockStmt& block)
      : interpreter_(interpreter), block_(block) {}

  std::string TypeName() const override { return "BlockReference"; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override;

 private:
  Interpreter& interpreter_;
  const BlockStmt& block_;
};

// The variable `self`: its attributes are the blocks.
class SelfObject : public CustomObject {
 public:
  explicit SelfObject(Interpreter& interpreter) : interpreter_(interpreter) {}

  std::string TypeName() const override { return "TemplateReference"; }
  std::optional<Value> Attribute(Runtime& runtime, const Text& name) override;
  Text Repr(Runtime& runtime) override;

 private:
  Interpreter& interpreter_;
};

}  // namespace hearth::jinja
