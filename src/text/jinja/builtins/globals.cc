// The functions that every template finds: Jinja's own and those that transformers adds.
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <string>
#include <utility>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/methods.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {
namespace {

constexpr Int kMaxRange = 100000;  // as in Jinja's sandbox

Value RangeFunction(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
  RefuseKeywords("range", arguments);
  const Parameters parameters("range", arguments, {"start", "stop", "step"}, 1);
  const bool only_stop = !parameters.Has(1);
  const Int start = only_stop ? 0 : parameters.Integer(0, 0);
  const Int stop = parameters.Integer(only_stop ? 0 : 1, 0);
  const Int step = parameters.Integer(2, 1);
  if (step == 0) throw Failure("the step of a range must not be zero");
  const auto* range = runtime.heap().New<RangeObject>(start, stop, step);
  if (range->length > kMaxRange) throw LimitExceeded("a range has more than 100000 items");
  return Value(range);
}

// dict(mapping or pairs, **more).
DictObject* MakeDict(Runtime& runtime, const Arguments& arguments) {
  auto* dict = runtime.heap().New<DictObject>();
  if (arguments.positional.size() > 1) throw Failure("dict takes one argument by place");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.Is(Kind::kUndefined)) FailUndefined(source);
    if (source.Is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().items) dict->Set(runtime, key, value);
    } else {
      for (const Value& pair : Items(runtime, source)) {
        const Values parts = Items(runtime, pair);
        if (parts.size() != 2) throw Failure("dict needs pairs of a key and a value");
        dict->Set(runtime, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords) dict->SetText(runtime.String(name), value);
  return dict;
}

Value DictFunction(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
  return Value(MakeDict(runtime, arguments));
}

Value NamespaceFunction(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
  auto* object = runtime.heap().New<NamespaceObject>();
  object->attributes = MakeDict(runtime, arguments);
  return Value(object);
}

Value RaiseFunction(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
  const Parameters parameters("raise_exception", arguments, {"message"}, 1);
  throw Failure(EncodeUtf8(Str(runtime, parameters[0])));
}

// What Python's datetime makes of fields that strftime does not know, or knows more of: a time
// without a zone has no name and no distance for it, and %f stands for the microseconds.
std::string WithPythonsFields(std::string_view format, long microseconds) {
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    const char field = format[at] == '%' && at + 1 < format.size() ? format[at + 1] : 0;
    if (field == 0) {
      out += format[at];
      continue;
    }
    ++at;
    if (field == 'f') {
      out += fmt::format("{:06}", microseconds);
    } else if (field != 'Z' && field != 'z') {
      out += {'%', field};
    }
  }
  return out;
}

Value TimeFunction(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
  const Parameters parameters("strftime_now", arguments, {"format"}, 1);
  using std::chrono::microseconds;
  const auto now =
      runtime.limits().now.value_or(std::chrono::system_clock::now()).time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const long rest = std::chrono::duration_cast<microseconds>(now).count() % 1'000'000;
  std::tm local{};
  localtime_r(&seconds, &local);
  const std::string format = WithPythonsFields(EncodeUtf8(parameters.String(0)), rest);
  char buffer[1024];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  return runtime.OwnString(std::string_view(buffer, size));
}

struct CyclerObject : CustomObject {
  std::string TypeName() const override { return "Cycler"; }
  std::optional<Value> Attribute(Runtime& runtime, const Text& name) override {
    if (name == Own("current")) return items[at];
    if (name == Own("next")) return Method<&CyclerObject::Next>(runtime);
    if (name == Own("reset")) return Method<&CyclerObject::Reset>(runtime);
    return std::nullopt;
  }
  Value Next() { return items[std::exchange(at, (at + 1) % items.size())]; }
  Value Reset() {
    at = 0;
    return Value::None();
  }
  Values items;
  size_t at = 0;

 private:
  template <Value (CyclerObject::*kMember)()>
  Value Method(Runtime& runtime) {
    constexpr MethodFn kFunction = [](Runtime& /*runtime*/, const Value& self,
                                      const Arguments& arguments) {
      Parameters("this method", arguments, {});
      return (static_cast<CyclerObject&>(self.object()).*kMember)();
    };
    return Value(runtime.heap().New<FunctionObject>(kFunction, Value(this)));
  }
};

Value CyclerFunction(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
  RefuseKeywords("cycler", arguments);
  if (arguments.positional.empty()) throw Failure("cycler needs at least one item");
  auto* cycler = runtime.heap().New<CyclerObject>();
  cycler->items = arguments.positional;
  return Value(cycler);
}

struct JoinerObject : CustomObject {
  std::string TypeName() const override { return "Joiner"; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override {
    Parameters("a joiner", arguments, {});
    return std::exchange(used, true) ? separator : runtime.String({});
  }
  Value separator;
  bool used = false;
};

Value JoinerFunction(Runtime& runtime, const Value& /*self*/, const Arguments& arguments) {
  const Parameters parameters("joiner", arguments, {"sep"});
  auto* joiner = runtime.heap().New<JoinerObject>();
  joiner->separator = parameters.Has(0) ? parameters[0] : runtime.OwnString(", ");
  return Value(joiner);
}

constexpr std::pair<std::string_view, MethodFn> kGlobals[] = {
    {"cycler", CyclerFunction},         {"dict", DictFunction},
    {"joiner", JoinerFunction},         {"namespace", NamespaceFunction},
    {"raise_exception", RaiseFunction}, {"range", RangeFunction},
    {"strftime_now", TimeFunction},
};

}  // namespace

std::optional<Value> FindGlobal(Runtime& runtime, const Text& name) {
  const std::string utf8 = EncodeUtf8(name);
  for (const auto& [its_name, function] : kGlobals) {
    if (its_name == utf8) return Value(runtime.heap().New<FunctionObject>(function, Value()));
  }
  return std::nullopt;
}

std::optional<Value> NamespaceObject::Attribute(Runtime& /*runtime*/, const Text& name) {
  const Value* found = attributes->FindText(name);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

Text NamespaceObject::Repr(Runtime& runtime) {
  return DecodeText("<Namespace ", false) + hearth::jinja::Repr(runtime, Value(attributes)) +
         DecodeText(">", false);
}

}  // namespace hearth::jinja
