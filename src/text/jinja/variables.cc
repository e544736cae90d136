#include "text/jinja/variables.h"

#include <fmt/format.h>

#include <string>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/macro.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/operators.h"

namespace hearth::jinja {
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

Frame& Variables::NewFrame(const Scope& scope, Frame* outer) {
  return *runtime_.heap().New<Frame>(scope, outer);
}

Frame& Variables::OpenRoot(const Scope& scope) {
  root_ = &NewFrame(scope, nullptr);
  Enter(*root_);
  return *root_;
}

Frame& Variables::Open(const Scope& scope, Frame* outer) {
  Frame& frame = NewFrame(scope, outer);
  Enter(frame);
  return frame;
}

void Variables::Enter(Frame& frame) {
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
        frame.slots[i] = frame.Slot(slot.outer);
        break;
      case Scope::Start::kMissing:
        frame.slots[i] = Value();
        break;
    }
  }
}

Value Variables::LookUp(const Text& name) {
  if (blocks_around_ > 0) {
    // A block sees what the template has set so far.
    for (size_t i = 0; i < root_->slots.size(); ++i) {
      if (root_->scope.slots[i].name == name && !root_->slots[i].Is(Kind::kMissing)) {
        return root_->slots[i];
      }
    }
  }
  if (name == Own("self")) return Value(runtime_.heap().New<SelfObject>(interpreter_));
  if (const Value* found = context_.FindText(name)) return *found;
  return FindGlobal(runtime_, name).value_or(Value());
}

void Variables::Assign(const Expr& target, Frame& frame, const Value& value) {
  if (target.kind == ExprKind::kSequence) {
    const auto& names = static_cast<const SequenceExpr&>(target).items;
    const Values values = Unpack(runtime_, value, names.size());
    for (size_t i = 0; i < names.size(); ++i) Assign(*names[i], frame, values[i]);
    return;
  }
  const auto& name = static_cast<const NameExpr&>(target);
  Value& slot = frame.Slot(name.slot);
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

}  // namespace hearth::jinja
