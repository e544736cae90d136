// How models write tool calls: one row per way that chat templates teach.
#pragma once

#include <string_view>
#include <vector>

namespace hearth {

// Calls stand after `begin`, each as
//   kObject  {"name": NAME, "arguments": ARGUMENTS}, then `end`
//   kList    a JSON list of such objects, then `end`
//   kNamed   NAME `name_end` ARGUMENTS, then `end`
// where ARGUMENTS is a JSON object, or with arguments one by one as
//   kTagged  `name_begin` NAME `name_end`, of each `key_begin` KEY `key_end` `value_begin` VALUE
//            `value_end`, then `close` and `end`; texts stand without quotes, other values as JSON
//   kPython  a Python list of NAME(KEY=VALUE, ...), then `end`
// In kObject, kNamed and kTagged a further call begins with `begin` again.
struct ToolSyntax {
  enum class Form { kObject, kList, kNamed, kTagged, kPython };

  const char* name;
  Form form;
  std::string_view begin;
  std::string_view end;  // may be empty
  std::string_view name_key = "name";
  std::string_view arguments_key = "arguments";
  std::string_view name_end = "";  // of kTagged also empty: a name ends where a tag begins
  // Of kTagged.
  std::string_view name_begin = "";
  std::string_view key_begin = "";
  std::string_view key_end = "";
  std::string_view value_begin = "";
  std::string_view value_end = "";
  std::string_view close = "";
  bool values_on_lines = false;  // of their own
  bool is_bare = false;          // an answer may also be an object (a list) itself, without `begin`
  bool takes_many = true;        // an answer may have several calls
  bool short_ids = false;        // templates demand ids of nine letters and digits

  // Arguments stand one by one.
  bool has_body() const { return form == Form::kTagged || form == Form::kPython; }
};

// What a chat template (its Jinja source) teaches, by its markers; null where that is none of the
// rows.
const ToolSyntax* DetectToolSyntax(std::string_view jinja_template);

// All rows.
std::vector<const ToolSyntax*> AllToolSyntaxes();

// For templates that teach none, with a description of its own (tool_prompt.h): Hermes' tags.
const ToolSyntax& GenericToolSyntax();

// Calls of Harmony, whose answers consist of channels.
const ToolSyntax& HarmonyToolSyntax();

}  // namespace hearth
