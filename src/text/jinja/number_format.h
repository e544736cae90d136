// A number or a text in a field: "{:>8.2f}", "%-5d".
#pragma once

#include <optional>
#include <string>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace hearth::jinja {

struct FormatSpec {
  char32_t fill = Trusted(' ');
  char align = 0;  // < > ^ =, or 0: the type's own
  char sign = '-';
  bool alternate = false;  // #
  char group = 0;          // , or _ between thousands
  Int width = 0;
  std::optional<Int> precision;
  char type = 0;  // d, f, s, ..., or 0
};

// Whether a sign stands in front, as of -0.0.
bool IsNegative(const Value& number);
// Other characters as escapes, as ascii() writes them.
Text AsciiOnly(const Text& text);

// The digits of a number of format type `type` (d x X o b e E f F g G %), without a sign.
std::string Digits(const Value& number, const FormatSpec& spec, char type);
// `digits` behind its sign, filled up to the width.
Text NumberField(const std::string& digits, bool negative, const FormatSpec& spec);
// `text` filled up to the width, at the left end unless the spec says otherwise.
Text TextField(Text text, const FormatSpec& spec);

}  // namespace hearth::jinja
