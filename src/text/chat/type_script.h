// Functions as declarations of TypeScript, as Harmony shows them to models.
#pragma once

#include <string>
#include <vector>

#include "text/tools/tool_function.h"

namespace hearth {

// Some functions of one name: "functions", "browser".
struct ToolNamespace {
  std::string name;
  std::string description;  // without functions: how to use it, in words
  std::vector<ToolFunction> functions;
};

// "## NAME", the description and a declaration for each function. What TypeScript cannot say of a
// schema is "any".
std::string DescribeNamespace(const ToolNamespace& tools);

}  // namespace hearth
