#include "text/tools/tool_function.h"

namespace hearth {

std::string ParametersOf(const ToolFunction& function) {
  return function.parameters.empty() ? R"({"type": "object", "properties": {}})"
                                     : function.parameters;
}

}  // namespace hearth
