// Methods of values: tables from names to functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

using MethodFn = Value (*)(Runtime& runtime, const Value& self, const Arguments& arguments);

// A method of a str, list, tuple or dict; nothing where its type has none of that name.
std::optional<Value> FindMethod(Runtime& runtime, const Value& object, const Text& name);

// Null where a str has none of that name.
MethodFn FindStringMethod(std::string_view name);

// A function that a template can call.
class FunctionObject : public CustomObject {
 public:
  FunctionObject(MethodFn function, Value self) : function_(function), self_(self) {}
  std::string TypeName() const override { return "function"; }
  bool IsCallable() const override { return true; }
  Value Call(Runtime& runtime, const Arguments& arguments) override {
    return function_(runtime, self_, arguments);
  }

 private:
  const MethodFn function_;
  const Value self_;  // missing for a function that is no method
};

}  // namespace hearth::jinja
