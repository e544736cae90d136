// Literals of Python as JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hearth {

// A literal (string, number, True, False, None, list, tuple, dict, also nested) or a JSON value, as
// JSON; nothing where the text is not one. Keys of dicts become strings. What is no UTF-8 becomes
// U+FFFD.
std::optional<std::string> PythonToJson(std::string_view text);

}  // namespace hearth
