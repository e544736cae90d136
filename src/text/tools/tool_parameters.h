// What a function takes, for models that write its arguments one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/json_schema_parts.h"

namespace hearth {

struct ToolParameter {
  std::string name;
  const SchemaJson* schema = nullptr;  // in ToolParameters::root
  uint8_t kinds = kAllKinds;  // of the values that the schema allows, as far as it says so itself
};

struct ToolParameters {
  std::shared_ptr<const SchemaJson> root;  // the schema of all arguments together; null: not known
  std::vector<ToolParameter> all;          // its "properties", in their order

  // kAllKinds for what is none of them.
  uint8_t KindsOf(std::string_view name) const;
};

// Of a JSON Schema of an object (an empty text: no parameters). Never throws for its content: what
// cannot be understood has no parameters, or some of any kind.
ToolParameters ReadToolParameters(const std::string& schema);

// The value that a model wrote without quotes, as JSON: a value of these kinds where the text is
// one (as JSON or as Python writes it), else a string where that is allowed.
std::string JsonOfBareText(const std::string& text, uint8_t kinds);

// A Python literal (string, number, True, False, None, list, tuple, dict) or a JSON value, as JSON;
// a text that is neither becomes a string.
std::string JsonOfPython(const std::string& text);

}  // namespace hearth
