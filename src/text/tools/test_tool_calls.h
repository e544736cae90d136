// What tool call readers find, for tests.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "text/tools/tool_call_reader.h"

namespace hearth {

struct FoundCall {
  std::string name;
  std::string arguments;
  bool operator==(const FoundCall& other) const {
    return name == other.name && arguments == other.arguments;
  }
};
inline void PrintTo(const FoundCall& call, std::ostream* out) {
  *out << call.name << call.arguments;
}

// The sum of parts.
struct FoundInAnswer {
  std::string text;
  std::vector<FoundCall> calls;

  void Add(const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      if (!part.call) {
        EXPECT_TRUE(part.name.empty());
        text += part.text;
        continue;
      }
      const bool is_new = *part.call == std::ssize(calls);
      EXPECT_EQ(part.name.empty(), !is_new) << "the name comes first, and once";
      if (is_new) calls.push_back({part.name, ""});
      ASSERT_EQ(*part.call, std::ssize(calls) - 1) << "calls come one after the other";
      calls.back().arguments += part.text;
    }
  }
};

inline std::shared_ptr<const CallableFunctions> Callable(const std::vector<std::string>& names,
                                                         const ToolSyntax& syntax) {
  std::vector<ToolFunction> functions;
  for (const std::string& name : names) functions.push_back({.name = name});
  return MakeCallable(functions, syntax);
}

inline FoundInAnswer FindCalls(const ToolSyntax& syntax,
                               const std::shared_ptr<const CallableFunctions>& functions,
                               const std::string& answer) {
  ToolCallReader reader(syntax, functions);
  FoundInAnswer found;
  found.Add(reader.Push(answer));
  found.Add(reader.Finish());
  EXPECT_EQ(reader.num_calls(), std::ssize(found.calls));
  return found;
}

}  // namespace hearth
