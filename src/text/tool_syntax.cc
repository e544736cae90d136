#include "text/tool_syntax.h"

#include <algorithm>
#include <array>
#include <vector>

namespace hearth {
namespace {

using Form = ToolSyntax::Form;

// A template teaches a syntax where it holds all of `has` and none of `lacks`.
struct Row {
  ToolSyntax syntax;
  std::vector<std::string_view> has;
  std::vector<std::string_view> lacks;
};

const std::array<Row, 6>& Rows() {
  static const std::array<Row, 6> rows = {{
      // Hermes 2 and 3, Qwen 2.5 and 3; others put XML between the same tags.
      {{.name = "hermes", .form = Form::kObject, .begin = "<tool_call>", .end = "</tool_call>"},
       {"<tool_call>", "arguments"},
       {"<arg_key>", "<function="}},
      // Mistral since its tokenizer v11.
      {{.name = "mistral-named",
        .form = Form::kNamed,
        .begin = "[TOOL_CALLS]",
        .end = "",
        .name_end = "[ARGS]",
        .short_ids = true},
       {"[TOOL_CALLS]", "[ARGS]"},
       {}},
      {{.name = "mistral",
        .form = Form::kList,
        .begin = "[TOOL_CALLS]",
        .end = "",
        .short_ids = true},
       {"[TOOL_CALLS]"},
       {"[ARGS]"}},
      // Command R7B and A.
      {{.name = "command",
        .form = Form::kList,
        .begin = "<|START_ACTION|>",
        .end = "<|END_ACTION|>",
        .name_key = "tool_name",
        .arguments_key = "parameters"},
       {"<|START_ACTION|>", "tool_name"},
       {}},
      {{.name = "function-tag",
        .form = Form::kNamed,
        .begin = "<function=",
        .end = "</function>",
        .name_end = ">"},
       {"<function=", "</function>"},
       {"<parameter="}},
      // Llama 3.1 to 3.3.
      {{.name = "llama-3",
        .form = Form::kObject,
        .begin = "<|python_tag|>",
        .end = "",
        .arguments_key = "parameters",
        .is_bare = true,
        .takes_many = false},
       {"<|start_header_id|>", "\"parameters\": "},
       {}},
  }};
  return rows;
}

bool Teaches(std::string_view jinja_template, const Row& row) {
  const auto holds = [&](std::string_view part) {
    return jinja_template.find(part) != std::string_view::npos;
  };
  return std::all_of(row.has.begin(), row.has.end(), holds) &&
         std::none_of(row.lacks.begin(), row.lacks.end(), holds);
}

}  // namespace

const ToolSyntax* DetectToolSyntax(std::string_view jinja_template) {
  for (const Row& row : Rows()) {
    if (Teaches(jinja_template, row)) return &row.syntax;
  }
  return nullptr;
}

const ToolSyntax& GenericToolSyntax() { return Rows().front().syntax; }

}  // namespace hearth
