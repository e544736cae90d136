// Statements and variables; expressions are in evaluate.cc, macros and loops in macro.cc and
// loop.cc.
#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/failure.h"
#include "text/jinja/loop.h"
#include "text/jinja/macro.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace hearth::jinja {

Text Interpreter::Run() {
  root_ = runtime_.heap().New<Frame>(tree_.scope, nullptr);
  Text output;
  out_ = &output;
  Enter(*root_);
  ExecuteBody(tree_.body, *root_);
  out_ = nullptr;
  return output;
}

template <typename RunFn>
Text Interpreter::Capture(RunFn run) {
  Text captured;
  Text* const outer = std::exchange(out_, &captured);
  // After a failure nothing is written any more; out_ need not come back then.
  run();
  out_ = outer;
  return captured;
}

void Interpreter::Write(const Text& text) {
  runtime_.Spend(text.size() / 16);
  if (out_->size() + text.size() > runtime_.limits().max_output_characters) {
    throw LimitExceeded("the template writes too much");
  }
  *out_ += text;
}

void Interpreter::WriteString(const Value& value) {
  if (!value.Is(Kind::kString)) {
    throw Failure("a call or filter block must give a str, not a " + TypeName(value));
  }
  Write(value.text());
}

// --- variables

Frame& Interpreter::NewFrame(const Scope& scope, Frame* outer) {
  return *runtime_.heap().New<Frame>(scope, outer);
}

Value& Interpreter::Slot(Frame& frame, SlotRef slot) {
  Frame* owner = &frame;
  for (int i = 0; i < slot.hops; ++i) owner = owner->outer;
  return owner->slots[static_cast<size_t>(slot.index)];
}

void Interpreter::Enter(Frame& frame) {
  runtime_.Spend(1 + frame.slots.size() / 4);
  for (size_t i = 0; i < frame.slots.size(); ++i) {
    const Scope::Slot& slot = frame.scope.slots[i];
    switch (slot.start) {
      case Scope::Start::kParameter:
        break;
      case Scope::Start::kContext:
        frame.slots[i] = LookUp(slot.name);
        break;
      case Scope::Start::kOuter:
        frame.slots[i] = Slot(frame, slot.outer);
        break;
      case Scope::Start::kMissing:
        frame.slots[i] = Value();
        break;
    }
  }
}

Value Interpreter::LookUp(const Text& name) {
  if (blocks_around_ > 0) {
    // A block sees what the template has set so far.
    for (size_t i = 0; i < root_->slots.size(); ++i) {
      if (root_->scope.slots[i].name == name && !root_->slots[i].Is(Kind::kMissing)) {
        return root_->slots[i];
      }
    }
  }
  if (name == Own("self")) return Value(runtime_.heap().New<SelfObject>(*this));
  if (const Value* found = context_.FindText(name)) return *found;
  return FindGlobal(runtime_, name).value_or(Value());
}

namespace {

// The values for the names of a tuple.
Values Unpack(Runtime& runtime, const Value& value, size_t count) {
  Values items = Items(runtime, value);
  if (items.size() != count) {
    throw Failure(fmt::format("there are {} values for {} names", items.size(), count));
  }
  return items;
}

}  // namespace

void Interpreter::Assign(const Expr& target, Frame& frame, const Value& value) {
  if (target.kind == ExprKind::kSequence) {
    const auto& names = static_cast<const SequenceExpr&>(target).items;
    const Values values = Unpack(runtime_, value, names.size());
    for (size_t i = 0; i < names.size(); ++i) Assign(*names[i], frame, values[i]);
    return;
  }
  const auto& name = static_cast<const NameExpr&>(target);
  Value& slot = Slot(frame, name.slot);
  if (name.attribute.empty()) {
    slot = value;
    return;
  }
  auto* object = slot.Is(Kind::kObject) ? dynamic_cast<NamespaceObject*>(&slot.object()) : nullptr;
  if (object == nullptr) {
    throw Failure(fmt::format("'{}' is no namespace, so that its attributes cannot be set",
                              EncodeUtf8(name.name)));
  }
  object->attributes->SetText(runtime_.String(name.attribute), value);
}

// --- statements

Flow Interpreter::ExecuteBody(const Body& body, Frame& frame) {
  for (const StmtPtr& stmt : body) {
    const Flow flow = Execute(*stmt, frame);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Flow Interpreter::Execute(const Stmt& stmt, Frame& frame) {
  const DepthScope depth(runtime_);
  runtime_.Spend(1);
  runtime_.line = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kOutput:
      Output(static_cast<const OutputStmt&>(stmt), frame);
      return Flow::kNormal;
    case StmtKind::kIf:
      return If(static_cast<const IfStmt&>(stmt), frame);
    case StmtKind::kFor: {
      const auto& loop = static_cast<const ForStmt&>(stmt);
      return For(loop, frame, Evaluate(*loop.items, frame), 0);
    }
    case StmtKind::kSet:
      Set(static_cast<const SetStmt&>(stmt), frame);
      return Flow::kNormal;
    case StmtKind::kSetBlock:
      return SetBlock(static_cast<const SetBlockStmt&>(stmt), frame);
    case StmtKind::kMacro:
      DefineMacro(static_cast<const MacroStmt&>(stmt), frame);
      return Flow::kNormal;
    case StmtKind::kCallBlock:
      CallBlock(static_cast<const CallBlockStmt&>(stmt), frame);
      return Flow::kNormal;
    case StmtKind::kFilterBlock:
      return FilterBlock(static_cast<const FilterBlockStmt&>(stmt), frame);
    case StmtKind::kWith:
      return With(static_cast<const WithStmt&>(stmt), frame);
    case StmtKind::kBlock: {
      const auto& block = static_cast<const BlockStmt&>(stmt);
      Block(block, block.scoped ? &frame : nullptr);
      return Flow::kNormal;
    }
    case StmtKind::kGeneration:
      return Generation(static_cast<const GenerationStmt&>(stmt), frame);
    case StmtKind::kAutoEscape:
      return AutoEscape(static_cast<const AutoEscapeStmt&>(stmt), frame);
    case StmtKind::kOtherTemplate:
      throw Failure("the tag '" + static_cast<const OtherTemplateStmt&>(stmt).tag +
                    "' is not supported in a chat template");
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Interpreter::Output(const OutputStmt& stmt, Frame& frame) {
  for (const auto& part : stmt.parts) {
    if (const auto* text = std::get_if<Text>(&part)) {
      Write(*text);
    } else {
      Write(Str(runtime_, Evaluate(*std::get<ExprPtr>(part), frame)));
    }
  }
}

Flow Interpreter::If(const IfStmt& stmt, Frame& frame) {
  for (const auto& [test, body] : stmt.branches) {
    if (IsTrue(runtime_, Evaluate(*test, frame))) return ExecuteBody(body, frame);
  }
  return ExecuteBody(stmt.otherwise, frame);
}

void Interpreter::Block(const BlockStmt& stmt, Frame* outer) {
  ++blocks_around_;
  Frame& inner = NewFrame(stmt.scope, outer);
  Enter(inner);
  ExecuteBody(stmt.body, inner);
  --blocks_around_;
}

Text Interpreter::RenderBlock(const BlockStmt& block) {
  const DepthScope depth(runtime_);
  return Capture([&] { Block(block, nullptr); });
}

void Interpreter::Set(const SetStmt& stmt, Frame& frame) {
  const Value value = Evaluate(*stmt.value, frame);
  runtime_.line = stmt.line;
  Assign(*stmt.target, frame, value);
}

Flow Interpreter::SetBlock(const SetBlockStmt& stmt, Frame& frame) {
  Frame& inner = NewFrame(stmt.scope, &frame);
  Enter(inner);
  Flow flow = Flow::kNormal;
  Text text = Capture([&] { flow = ExecuteBody(stmt.body, inner); });
  if (flow != Flow::kNormal) return flow;  // left before it was written
  runtime_.line = stmt.line;
  const Value value = stmt.filter == nullptr
                          ? runtime_.String(std::move(text))
                          : Filter(static_cast<const FilterExpr&>(*stmt.filter), inner, &text);
  Assign(*stmt.target, frame, value);
  return flow;
}

Flow Interpreter::FilterBlock(const FilterBlockStmt& stmt, Frame& frame) {
  Frame& inner = NewFrame(stmt.scope, &frame);
  Enter(inner);
  Flow flow = Flow::kNormal;
  const Text text = Capture([&] { flow = ExecuteBody(stmt.body, inner); });
  if (flow != Flow::kNormal) return flow;
  const auto& filter = static_cast<const FilterExpr&>(*stmt.filter);
  WriteString(Filter(filter, inner, &text));
  return flow;
}

Flow Interpreter::With(const WithStmt& stmt, Frame& frame) {
  Frame& inner = NewFrame(stmt.scope, &frame);
  Enter(inner);
  for (const auto& [target, value] : stmt.assignments) {
    Assign(*target, inner, Evaluate(*value, frame));
  }
  return ExecuteBody(stmt.body, inner);
}

Flow Interpreter::Generation(const GenerationStmt& stmt, Frame& frame) {
  Frame& inner = NewFrame(stmt.scope, &frame);
  Enter(inner);
  return ExecuteBody(stmt.body, inner);
}

Flow Interpreter::AutoEscape(const AutoEscapeStmt& stmt, Frame& frame) {
  Frame& inner = NewFrame(stmt.scope, &frame);
  Enter(inner);
  if (IsTrue(runtime_, Evaluate(*stmt.escapes, inner))) {
    throw Failure("a chat template cannot switch 'autoescape' on");
  }
  return ExecuteBody(stmt.body, inner);
}

Flow Interpreter::For(const ForStmt& stmt, Frame& frame, const Value& items, int level) {
  runtime_.line = stmt.line;
  auto* loop = runtime_.heap().New<LoopObject>(*this, stmt, frame, items, level);
  IteratorObject* iterator = &Iterate(runtime_, items);
  if (stmt.condition != nullptr) {
    Frame& condition = NewFrame(stmt.condition_scope, &frame);
    const int nesting = NestingOver(Value(iterator));
    iterator = runtime_.heap().New<ConditionIterator>(*this, stmt, condition, *iterator);
    iterator->nesting = nesting;
  }
  loop->Begin(iterator);
  Frame& inner = NewFrame(stmt.body_scope, &frame);
  // As in Jinja, a loop counts as empty for its "else" until a pass reaches the end of the body.
  bool is_empty = true;
  while (const auto item = loop->Advance(runtime_)) {
    runtime_.line = stmt.line;
    Enter(inner);
    Assign(*stmt.target, inner, *item);
    inner.slots[static_cast<size_t>(stmt.loop_slot)] = Value(loop);
    const Flow flow = ExecuteBody(stmt.body, inner);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) is_empty = false;
  }
  if (!is_empty || stmt.otherwise.empty()) return Flow::kNormal;
  Frame& otherwise = NewFrame(stmt.otherwise_scope, &frame);
  Enter(otherwise);
  return ExecuteBody(stmt.otherwise, otherwise);
}

Text Interpreter::RenderRecursion(const ForStmt& stmt, Frame* outer, const Value& items,
                                  int level) {
  const DepthScope depth(runtime_);
  return Capture([&] { For(stmt, *outer, items, level); });
}

// --- macros

void Interpreter::DefineMacro(const MacroStmt& stmt, Frame& frame) {
  auto* macro =
      runtime_.heap().New<MacroObject>(*this, stmt.macro, frame, EncodeUtf8(stmt.target->name));
  Assign(*stmt.target, frame, Value(macro));
}

void Interpreter::CallBlock(const CallBlockStmt& stmt, Frame& frame) {
  const Value caller(runtime_.heap().New<MacroObject>(*this, stmt.caller, frame, ""));
  WriteString(Function(*stmt.call, frame, &caller));
}

Text Interpreter::RenderMacro(const MacroBody& macro, Frame* outer, const std::string& name,
                              const Arguments& arguments) {
  const DepthScope depth(runtime_);
  Frame& frame = NewFrame(macro.scope, outer);
  Enter(frame);
  BindParameters(macro, frame, name, arguments);
  return Capture([&] { ExecuteBody(macro.body, frame); });
}

void Interpreter::BindParameters(const MacroBody& macro, Frame& frame, const std::string& name,
                                 const Arguments& arguments) {
  Arguments rest = arguments;
  const auto take_keyword = [&](const Text& wanted) {
    for (auto it = rest.keywords.begin(); it != rest.keywords.end(); ++it) {
      if (it->first != wanted) continue;
      const Value value = it->second;
      rest.keywords.erase(it);
      return value;
    }
    return Value();
  };
  const size_t count = macro.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    const NameExpr& parameter = *macro.parameters[i];
    Slot(frame, parameter.slot) =
        i < arguments.positional.size() ? arguments.positional[i] : take_keyword(parameter.name);
  }
  if (macro.uses_caller) {
    const Value caller = take_keyword(Own("caller"));
    const bool has_caller = !caller.Is(Kind::kMissing) && !caller.Is(Kind::kNone);
    Slot(frame, macro.caller) = has_caller ? caller : runtime_.Undefined("there is no caller");
  }
  if (macro.uses_kwargs) {
    auto* dict = runtime_.heap().New<DictObject>();
    for (const auto& [key, value] : rest.keywords) dict->SetText(runtime_.String(key), value);
    Slot(frame, macro.kwargs) = Value(dict);
  } else if (!rest.keywords.empty()) {
    throw Failure(fmt::format("the macro '{}' takes no argument '{}'", name,
                              EncodeUtf8(rest.keywords[0].first)));
  }
  if (macro.uses_varargs) {
    const size_t named = std::min(count, arguments.positional.size());
    Slot(frame, macro.varargs) = runtime_.Tuple(
        {arguments.positional.begin() + static_cast<ptrdiff_t>(named), arguments.positional.end()});
  } else if (arguments.positional.size() > count) {
    throw Failure(fmt::format("the macro '{}' takes at most {} arguments", name, count));
  }
  const size_t without_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const NameExpr& parameter = *macro.parameters[i];
    if (!Slot(frame, parameter.slot).Is(Kind::kMissing)) continue;
    Slot(frame, parameter.slot) =
        i >= without_default
            ? Evaluate(*macro.defaults[i - without_default], frame)
            : runtime_.Undefined(fmt::format("the parameter '{}' of the macro '{}' was not given",
                                             EncodeUtf8(parameter.name), name));
  }
}

}  // namespace hearth::jinja
