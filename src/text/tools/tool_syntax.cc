#include "text/tools/tool_syntax.h"

#include <algorithm>
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

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
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
       {"func_name1("}},
      // Qwen 3 Coder and 3.5.
      {{.name = "parameter-tags",
        .form = Form::kTagged,
        .begin = "<tool_call>",
        .end = "</tool_call>",
        .name_end = ">",
        .name_begin = "<function=",
        .key_begin = "<parameter=",
        .key_end = ">",
        .value_end = "</parameter>",
        .close = "</function>",
        .values_on_lines = true},
       {"<tool_call>", "<function=", "<parameter=", "</parameter>"},
       {}},
      // GLM 4.5 and later.
      {{.name = "arg-tags",
        .form = Form::kTagged,
        .begin = "<tool_call>",
        .end = "</tool_call>",
        .key_begin = "<arg_key>",
        .key_end = "</arg_key>",
        .value_begin = "<arg_value>",
        .value_end = "</arg_value>"},
       {"<tool_call>", "<arg_key>", "<arg_value>"},
       {}},
      // LFM 2 and 2.5.
      {{.name = "python-list",
        .form = Form::kPython,
        .begin = "<|tool_call_start|>",
        .end = "<|tool_call_end|>"},
       {"<|tool_call_start|>", "<|tool_call_end|>"},
       {}},
      // Harmony, of gpt-oss. Its answers are read, and constrained, by their channels (text/chat).
      {{.name = "harmony",
        .form = Form::kNamed,
        .begin = "<|channel|>commentary to=functions.",
        .end = "",
        .name_end = " <|constrain|>json<|message|>",
        .takes_many = false},
       {"<|start|>", "<|channel|>", "<|message|>", "<|call|>", "functions."},
       {}},
      // Llama 3.2 and 4, Gemma 3, where their templates ask for it.
      {{.name = "pythonic",
        .form = Form::kPython,
        .begin = "<|python_start|>",
        .end = "<|python_end|>",
        .is_bare = true},
       {"[func_name1("},
       {}},
  };
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

std::vector<const ToolSyntax*> AllToolSyntaxes() {
  std::vector<const ToolSyntax*> all;
  for (const Row& row : Rows()) all.push_back(&row.syntax);
  return all;
}

const ToolSyntax& GenericToolSyntax() { return Rows().front().syntax; }

const ToolSyntax& HarmonyToolSyntax() {
  return *DetectToolSyntax("<|start|>functions. <|channel|><|message|><|call|>");
}

}  // namespace hearth
