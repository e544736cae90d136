#include "text/jinja/loop.h"

#include <utility>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/methods.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {

std::optional<Value> ConditionIterator::Next(Runtime& runtime) {
  while (auto item = items.Next(runtime)) {
    variables.Enter(frame);
    variables.Assign(*stmt.target, frame, *item);
    if (IsTrue(runtime, evaluator.Evaluate(*stmt.condition, frame))) return item;
  }
  return std::nullopt;
}

std::optional<Value> LoopObject::Advance(Runtime& runtime) {
  std::optional<Value> item = std::exchange(after_, std::nullopt);
  if (!item) item = items_->Next(runtime);
  if (!item) return std::nullopt;
  ++index0_;
  before_ = std::exchange(current_, item);
  return item;
}

std::optional<Value> RestOfLoop::Next(Runtime& runtime) {
  const auto item = loop.Advance(runtime);
  if (!item) return std::nullopt;
  return runtime.Tuple({*item, Value(&loop)});
}

IteratorObject* LoopObject::Iterator() {
  rest_.nesting = NestingOver(Value(items_));
  return &rest_;
}

const std::optional<Value>& LoopObject::PeekNext(Runtime& runtime) {
  if (!after_) after_ = items_->Next(runtime);
  return after_;
}

std::optional<Int> LoopObject::Length(Runtime& runtime) {
  if (length_) return length_;
  if (stmt_.condition == nullptr && HasLength(runtime, source_)) {
    length_ = hearth::jinja::Length(runtime, source_);
    return length_;
  }
  Values rest = Items(runtime, Value(items_));
  length_ = static_cast<Int>(rest.size()) + index0_ + 1 + (after_ ? 1 : 0);
  items_ = &Iterate(runtime, runtime.List(std::move(rest)));
  return length_;
}

Value LoopObject::Call(Runtime& runtime, const Arguments& arguments) {
  const Parameters parameters("loop", arguments, {"iterable"}, 1);
  if (!stmt_.recursive) throw Failure("only a loop marked 'recursive' can be called");
  return runtime.String(interpreter_.RenderRecursion(stmt_, &frame_, parameters[0], level_ + 1));
}

std::optional<Value> LoopObject::Attribute(Runtime& runtime, const Text& name) {
  const std::string utf8 = EncodeUtf8(name);
  if (utf8 == "index") return Value::Integer(index0_ + 1);
  if (utf8 == "index0") return Value::Integer(index0_);
  if (utf8 == "first") return Value::Bool(index0_ == 0);
  if (utf8 == "depth") return Value::Integer(level_ + 1);
  if (utf8 == "depth0") return Value::Integer(level_);
  if (utf8 == "length") return Value::Integer(*Length(runtime));
  if (utf8 == "revindex") return Value::Integer(*Length(runtime) - index0_);
  if (utf8 == "revindex0") return Value::Integer(*Length(runtime) - index0_ - 1);
  if (auto neighbour = Neighbour(runtime, utf8)) return neighbour;
  return Method(runtime, utf8);
}

std::optional<Value> LoopObject::Neighbour(Runtime& runtime, const std::string& name) {
  if (name == "last") return Value::Bool(!PeekNext(runtime));
  if (name == "previtem") {
    if (index0_ == 0) return runtime.Undefined("there is no previous item");
    return before_;
  }
  if (name == "nextitem") {
    const auto& next = PeekNext(runtime);
    return next ? *next : runtime.Undefined("there is no next item");
  }
  return std::nullopt;
}

std::optional<Value> LoopObject::Method(Runtime& runtime, const std::string& name) {
  MethodFn function = nullptr;
  if (name == "cycle") {
    function = [](Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
      return static_cast<LoopObject&>(self.object()).Cycle(arguments);
    };
  } else if (name == "changed") {
    function = [](Runtime& its_runtime, const Value& self, const Arguments& arguments) {
      return static_cast<LoopObject&>(self.object()).Changed(its_runtime, arguments);
    };
  }
  if (function == nullptr) return std::nullopt;
  return Value(runtime.heap().New<FunctionObject>(function, Value(this)));
}

Value LoopObject::Cycle(const Arguments& arguments) const {
  RefuseKeywords("cycle", arguments);
  if (arguments.positional.empty()) throw Failure("cycle needs at least one item");
  const auto count = static_cast<Int>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(index0_ % count)];
}

Value LoopObject::Changed(Runtime& runtime, const Arguments& arguments) {
  RefuseKeywords("changed", arguments);
  const Value value = runtime.Tuple(arguments.positional);
  if (!last_changed_.Is(Kind::kMissing) && Equal(runtime, last_changed_, value)) {
    return Value::Bool(false);
  }
  last_changed_ = value;
  return Value::Bool(true);
}

Text LoopObject::Repr(Runtime& runtime) {
  const Int length = *Length(runtime);
  return Own("<LoopContext " + IntText(index0_ + 1) + "/" + IntText(length) + ">");
}

}  // namespace hearth::jinja
