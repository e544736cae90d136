// Methods of lists, tuples and dicts, and what else has attributes.
#include "text/jinja/values/methods.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/markup.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {
namespace {

Value CountItems(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("count", arguments);
  const Parameters parameters("count", arguments, {"value"}, 1);
  Int count = 0;
  for (const Value& item : self.items()) count += Equal(runtime, item, parameters[0]) ? 1 : 0;
  return Value::Integer(count);
}

Value IndexOfItem(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("index", arguments);
  const Parameters parameters("index", arguments, {"value", "start", "stop"}, 1);
  const auto length = static_cast<Int>(self.items().size());
  const auto bound = [&](size_t index, Int otherwise) {
    const Int value = parameters.Integer(index, otherwise);
    return std::clamp<Int>(value < 0 ? value + length : value, 0, length);
  };
  const Int stop = bound(2, length);
  for (Int i = bound(1, 0); i < stop; ++i) {
    if (Equal(runtime, self.items()[static_cast<size_t>(i)], parameters[0]))
      return Value::Integer(i);
  }
  throw Failure("index did not find the value");
}

Value CopyList(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("copy", arguments, {});
  return runtime.List(Items(runtime, self));
}

template <DictViewObject::Part kPart>
Value ViewOfDict(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("this method", arguments, {});
  return Value(runtime.heap().New<DictViewObject>(&self.dict(), kPart));
}

Value GetFromDict(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("get", arguments);
  const Parameters parameters("get", arguments, {"key", "default"}, 1);
  const Value* found = self.dict().Find(runtime, parameters[0]);
  return found != nullptr ? *found : parameters.Or(1, Value::None());
}

Value CopyDict(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  Parameters("copy", arguments, {});
  return self;  // nothing can change it
}

// A dict with the same value for each key.
Value FromKeys(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
  RefuseKeywords("fromkeys", arguments);
  const Parameters parameters("fromkeys", arguments, {"iterable", "value"}, 1);
  auto* dict = runtime.heap().New<DictObject>();
  for (const Value& key : Items(runtime, parameters[0])) {
    dict->Set(runtime, key, parameters.Or(1, Value::None()));
  }
  return Value(dict);
}

Value BitLength(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  Parameters("bit_length", arguments, {});
  Int bits = 0;
  for (Int rest = self.integer(); rest != 0; rest /= 2) ++bits;
  return Value::Integer(bits);
}

Value IsIntegerMethod(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  Parameters("is_integer", arguments, {});
  return Value::Bool(std::isfinite(self.real()) && std::floor(self.real()) == self.real());
}

MethodFn FindOtherMethod(const Value& object, const std::string& name) {
  using Part = DictViewObject::Part;
  if (IsSequence(object.kind())) {
    if (name == "count") return CountItems;
    if (name == "index") return IndexOfItem;
    if (name == "copy" && object.Is(Kind::kList)) return CopyList;
  }
  if (object.Is(Kind::kDict)) {
    if (name == "items") return ViewOfDict<Part::kItems>;
    if (name == "keys") return ViewOfDict<Part::kKeys>;
    if (name == "values") return ViewOfDict<Part::kValues>;
    if (name == "get") return GetFromDict;
    if (name == "copy") return CopyDict;
    if (name == "fromkeys") return FromKeys;
  }
  if (IsInteger(object.kind()) && name == "bit_length") return BitLength;
  if (object.Is(Kind::kFloat) && name == "is_integer") return IsIntegerMethod;
  return nullptr;
}

// Attributes that are no methods.
std::optional<Value> FindProperty(const Value& object, const std::string& name) {
  if (object.Is(Kind::kTuple) && object.As<ListObject>().is_group) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  if (IsNumber(object.kind())) {
    if (name == "real") return object.Is(Kind::kBool) ? Value::Integer(object.integer()) : object;
    if (name == "imag") return IsInteger(object.kind()) ? Value::Integer(0) : Value::Float(0);
    if (IsInteger(object.kind()) && name == "numerator") return Value::Integer(object.integer());
    if (IsInteger(object.kind()) && name == "denominator") return Value::Integer(1);
  }
  if (object.Is(Kind::kRange)) {
    if (name == "start") return Value::Integer(object.As<RangeObject>().start);
    if (name == "stop") return Value::Integer(object.As<RangeObject>().stop);
    if (name == "step") return Value::Integer(object.As<RangeObject>().step);
  }
  return std::nullopt;
}

// A method of a text that is Markup.
class MarkupMethodObject : public CustomObject {
 public:
  MarkupMethodObject(MethodFn method, std::string name, Value self)
      : method_(method), name_(std::move(name)), self_(self) {}
  std::string TypeName() const override { return "function"; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override {
    return CallOnMarkup(runtime, method_, name_, self_, arguments);
  }

 private:
  const MethodFn method_;
  const std::string name_;
  const Value self_;
};

}  // namespace

std::optional<Value> FindMethod(Runtime& runtime, const Value& object, const Text& name) {
  const std::string utf8 = EncodeUtf8(name);
  if (auto property = FindProperty(object, utf8)) return property;
  const MethodFn method =
      object.Is(Kind::kString) ? FindStringMethod(utf8) : FindOtherMethod(object, utf8);
  if (method == nullptr) return std::nullopt;
  if (IsMarkup(object)) {
    return Value(runtime.heap().New<MarkupMethodObject>(method, utf8, object));
  }
  return Value(runtime.heap().New<FunctionObject>(method, object));
}

}  // namespace hearth::jinja
