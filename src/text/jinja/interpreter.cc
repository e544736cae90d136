#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/loop.h"
#include "text/jinja/macro.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"

namespace hearth::jinja {

Text Interpreter::Run() {
  Text output;
  out_ = &output;
  Frame& root = variables_.OpenRoot(tree_.scope);
  ExecuteBody(tree_.body, root);
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
      return For(loop, frame, evaluator_.Evaluate(*loop.items, frame), 0);
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
      Write(Str(runtime_, evaluator_.Evaluate(*std::get<ExprPtr>(part), frame)));
    }
  }
}

Flow Interpreter::If(const IfStmt& stmt, Frame& frame) {
  for (const auto& [test, body] : stmt.branches) {
    if (IsTrue(runtime_, evaluator_.Evaluate(*test, frame))) return ExecuteBody(body, frame);
  }
  return ExecuteBody(stmt.otherwise, frame);
}

void Interpreter::Block(const BlockStmt& stmt, Frame* outer) {
  variables_.EnterBlock();
  Frame& inner = variables_.Open(stmt.scope, outer);
  ExecuteBody(stmt.body, inner);
  variables_.LeaveBlock();
}

Text Interpreter::RenderBlock(const BlockStmt& block) {
  const DepthScope depth(runtime_);
  return Capture([&] { Block(block, nullptr); });
}

void Interpreter::Set(const SetStmt& stmt, Frame& frame) {
  const Value value = evaluator_.Evaluate(*stmt.value, frame);
  runtime_.line = stmt.line;
  variables_.Assign(*stmt.target, frame, value);
}

Flow Interpreter::SetBlock(const SetBlockStmt& stmt, Frame& frame) {
  Frame& inner = variables_.Open(stmt.scope, &frame);
  Flow flow = Flow::kNormal;
  Text text = Capture([&] { flow = ExecuteBody(stmt.body, inner); });
  if (flow != Flow::kNormal) return flow;  // left before it was written
  runtime_.line = stmt.line;
  const Value value =
      stmt.filter == nullptr
          ? runtime_.String(std::move(text))
          : evaluator_.Filter(static_cast<const FilterExpr&>(*stmt.filter), inner, &text);
  variables_.Assign(*stmt.target, frame, value);
  return flow;
}

Flow Interpreter::FilterBlock(const FilterBlockStmt& stmt, Frame& frame) {
  Frame& inner = variables_.Open(stmt.scope, &frame);
  Flow flow = Flow::kNormal;
  const Text text = Capture([&] { flow = ExecuteBody(stmt.body, inner); });
  if (flow != Flow::kNormal) return flow;
  const auto& filter = static_cast<const FilterExpr&>(*stmt.filter);
  WriteString(evaluator_.Filter(filter, inner, &text));
  return flow;
}

Flow Interpreter::With(const WithStmt& stmt, Frame& frame) {
  Frame& inner = variables_.Open(stmt.scope, &frame);
  for (const auto& [target, value] : stmt.assignments) {
    variables_.Assign(*target, inner, evaluator_.Evaluate(*value, frame));
  }
  return ExecuteBody(stmt.body, inner);
}

Flow Interpreter::Generation(const GenerationStmt& stmt, Frame& frame) {
  Frame& inner = variables_.Open(stmt.scope, &frame);
  return ExecuteBody(stmt.body, inner);
}

Flow Interpreter::AutoEscape(const AutoEscapeStmt& stmt, Frame& frame) {
  Frame& inner = variables_.Open(stmt.scope, &frame);
  if (IsTrue(runtime_, evaluator_.Evaluate(*stmt.escapes, inner))) {
    throw Failure("a chat template cannot switch 'autoescape' on");
  }
  return ExecuteBody(stmt.body, inner);
}

Flow Interpreter::For(const ForStmt& stmt, Frame& frame, const Value& items, int level) {
  runtime_.line = stmt.line;
  auto* loop = runtime_.heap().New<LoopObject>(*this, stmt, frame, items, level);
  IteratorObject* iterator = &Iterate(runtime_, items);
  if (stmt.condition != nullptr) {
    Frame& condition = variables_.NewFrame(stmt.condition_scope, &frame);
    const int nesting = NestingOver(Value(iterator));
    iterator =
        runtime_.heap().New<ConditionIterator>(variables_, evaluator_, stmt, condition, *iterator);
    iterator->nesting = nesting;
  }
  loop->Begin(iterator);
  Frame& inner = variables_.NewFrame(stmt.body_scope, &frame);
  // As in Jinja, a loop counts as empty for its "else" until a pass reaches the end of the body.
  bool is_empty = true;
  while (const auto item = loop->Advance(runtime_)) {
    runtime_.line = stmt.line;
    variables_.Enter(inner);
    variables_.Assign(*stmt.target, inner, *item);
    inner.slots[static_cast<size_t>(stmt.loop_slot)] = Value(loop);
    const Flow flow = ExecuteBody(stmt.body, inner);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) is_empty = false;
  }
  if (!is_empty || stmt.otherwise.empty()) return Flow::kNormal;
  Frame& otherwise = variables_.Open(stmt.otherwise_scope, &frame);
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
  variables_.Assign(*stmt.target, frame, Value(macro));
}

void Interpreter::CallBlock(const CallBlockStmt& stmt, Frame& frame) {
  const Value caller(runtime_.heap().New<MacroObject>(*this, stmt.caller, frame, ""));
  WriteString(evaluator_.Function(*stmt.call, frame, &caller));
}

Text Interpreter::RenderMacro(const MacroBody& macro, Frame* outer, const std::string& name,
                              const Arguments& arguments) {
  const DepthScope depth(runtime_);
  Frame& frame = variables_.Open(macro.scope, outer);
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
    frame.Slot(parameter.slot) =
        i < arguments.positional.size() ? arguments.positional[i] : take_keyword(parameter.name);
  }
  if (macro.uses_caller) {
    const Value caller = take_keyword(Own("caller"));
    const bool has_caller = !caller.Is(Kind::kMissing) && !caller.Is(Kind::kNone);
    frame.Slot(macro.caller) = has_caller ? caller : runtime_.Undefined("there is no caller");
  }
  if (macro.uses_kwargs) {
    auto* dict = runtime_.heap().New<DictObject>();
    for (const auto& [key, value] : rest.keywords) dict->SetText(runtime_.String(key), value);
    frame.Slot(macro.kwargs) = Value(dict);
  } else if (!rest.keywords.empty()) {
    throw Failure(fmt::format("the macro '{}' takes no argument '{}'", name,
                              EncodeUtf8(rest.keywords[0].first)));
  }
  if (macro.uses_varargs) {
    const size_t named = std::min(count, arguments.positional.size());
    frame.Slot(macro.varargs) = runtime_.Tuple(
        {arguments.positional.begin() + static_cast<ptrdiff_t>(named), arguments.positional.end()});
  } else if (arguments.positional.size() > count) {
    throw Failure(fmt::format("the macro '{}' takes at most {} arguments", name, count));
  }
  const size_t without_default = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const NameExpr& parameter = *macro.parameters[i];
    if (!frame.Slot(parameter.slot).Is(Kind::kMissing)) continue;
    frame.Slot(parameter.slot) =
        i >= without_default
            ? evaluator_.Evaluate(*macro.defaults[i - without_default], frame)
            : runtime_.Undefined(fmt::format("the parameter '{}' of the macro '{}' was not given",
                                             EncodeUtf8(parameter.name), name));
  }
}

}  // namespace hearth::jinja
