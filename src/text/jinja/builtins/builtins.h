// The filters, tests and functions that templates can use.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

using FilterFn = Value (*)(Runtime& runtime, const Value& value, const Arguments& arguments);
using TestFn = bool (*)(Runtime& runtime, const Value& value, const Arguments& arguments);

// Null where there is none of that name.
FilterFn FindFilter(std::string_view name);
TestFn FindTest(std::string_view name);

// range, dict, namespace, raise_exception, ...; nothing where there is none of that name.
std::optional<Value> FindGlobal(Runtime& runtime, const Text& name);

// What {% set name.attribute %} writes to.
struct NamespaceObject : CustomObject {
  std::string TypeName() const override { return "Namespace"; }
  std::optional<Value> Attribute(Runtime& runtime, const Text& name) override;
  Text Repr(Runtime& runtime) override;
  DictObject* attributes = nullptr;
};

}  // namespace hearth::jinja
