// How models write tool calls: one row per way that chat templates teach.
#pragma once

#include <string_view>

namespace hearth {

// Calls stand behind `begin`, each as
//   kObject  {"name": NAME, "arguments": ARGUMENTS}, then `end`
//   kList    a JSON list of such objects, then `end`
//   kNamed   NAME `name_end` ARGUMENTS, then `end`
// where ARGUMENTS is a JSON object. In kObject and kNamed a further call begins with `begin` again.
struct ToolSyntax {
  enum class Form { kObject, kList, kNamed };

  const char* name;
  Form form;
  std::string_view begin;
  std::string_view end;  // may be empty
  std::string_view name_key = "name";
  std::string_view arguments_key = "arguments";
  std::string_view name_end = "";
  bool is_bare = false;    // an answer may also be an object itself, without `begin`
  bool takes_many = true;  // an answer may have several calls
  bool short_ids = false;  // templates demand ids of nine letters and digits
};

// What a chat template (its Jinja source) teaches, by its markers; null where that is none of the
// rows.
const ToolSyntax* DetectToolSyntax(std::string_view jinja_template);

// For templates that teach none, with a description of its own (tool_prompt.h): Hermes' tags.
const ToolSyntax& GenericToolSyntax();

}  // namespace hearth
