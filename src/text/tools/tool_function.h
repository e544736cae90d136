// Functions that a conversation offers to the model.
#pragma once

#include <string>

namespace hearth {

// A function that the model may call.
struct ToolFunction {
  std::string name;
  std::string description;
  std::string parameters;  // a JSON Schema of an object; empty: it has none
  // Calls keep to the schema in any case where they are forced, else only of a strict function.
  bool strict = false;
};

// Its schema, where it has none that of an object without properties.
std::string ParametersOf(const ToolFunction& function);

}  // namespace hearth
