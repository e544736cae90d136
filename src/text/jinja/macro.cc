#include "text/jinja/macro.h"

#include <algorithm>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {

Value MacroObject::Call(Runtime& runtime, const Arguments& arguments) {
  return runtime.String(interpreter_.RenderMacro(macro_, &frame_, name_, arguments));
}

std::optional<Value> MacroObject::Attribute(Runtime& runtime, const Text& name) {
  if (name == Own("name")) return name_.empty() ? Value::None() : runtime.OwnString(name_);
  if (name == Own("catch_kwargs")) return Value::Bool(macro_.uses_kwargs);
  if (name == Own("catch_varargs")) return Value::Bool(macro_.uses_varargs);
  if (name == Own("caller")) return Value::Bool(macro_.uses_caller);
  if (name != Own("arguments")) return std::nullopt;
  Values names;
  for (const auto& parameter : macro_.parameters) names.push_back(runtime.String(parameter->name));
  return runtime.Tuple(std::move(names));
}

Text MacroObject::Repr(Runtime& /*runtime*/) {
  return Own(name_.empty() ? "<Macro anonymous>" : "<Macro '" + name_ + "'>");
}

Value BlockObject::Call(Runtime& runtime, const Arguments& arguments) {
  Parameters("a block", arguments, {});
  if (block_.scoped) throw Failure("a block that is marked 'scoped' cannot be called");
  return runtime.String(interpreter_.RenderBlock(block_));
}

std::optional<Value> SelfObject::Attribute(Runtime& runtime, const Text& name) {
  for (const BlockStmt* block : interpreter_.tree().blocks) {
    if (block->name == name) {
      return Value(runtime.heap().New<BlockObject>(interpreter_, *block));
    }
  }
  return std::nullopt;
}

Text SelfObject::Repr(Runtime& /*runtime*/) { return Own("<TemplateReference None>"); }

}  // namespace hearth::jinja
