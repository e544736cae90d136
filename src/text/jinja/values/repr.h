// Values as text.
#pragma once

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

// str(value) and repr(value) of Python. Characters of texts keep their marks. What is written
// around and between the items of a list or a dict is not trusted: its form comes from outside as
// well.
Text Str(Runtime& runtime, const Value& value);
Text Repr(Runtime& runtime, const Value& value);

// json.dumps(value, ensure_ascii, indent, separators, sort_keys).
struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent;  // of one level
  Text item_separator;
  Text key_separator;
};
Text ToJson(Runtime& runtime, const Value& value, const JsonOptions& options);

}  // namespace hearth::jinja
