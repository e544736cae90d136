// A number or a text in a field: "{:>8.2f}", "%-5d".
#pragma once

#include <optional>
#include <string>

#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

struct FormatSpec {
  char32_t fill = Trusted(' ');
  char align = 0;          // < > ^ =, or 0: the type's own
  char sign = 0;           // + - or a space, or 0: not given
  bool alternate = false;  // #
  char group = 0;          // , or _ between thousands
  Int width = 0;
  std::optional<Int> precision;
  char type = 0;  // d, f, s, ..., or 0
};

// Whether a sign stands in front, as of -0.0.
bool IsNegative(const Value& number);
// Whether a character of that number can be written: there is one, and no surrogate.
inline bool IsCodePoint(Int number) {
  return number >= 0 && number < 0x110000 && !(number >= 0xD800 && number < 0xE000);
}
// Other characters as escapes, as ascii() writes them.
Text AsciiOnly(const Text& text);

// A number written out, without its sign.
struct NumberText {
  std::string prefix;  // "0x"
  std::string whole;   // the digits before the point, not yet in groups
  std::string rest;    // ".5", "e+20", "%"; all of "inf"
};

// `number` in the format type `type` (d x X o b e E f F g G %), or, for 0, as str() writes it: a
// float then has a point or an exponent whatever the precision is.
NumberText Digits(const Value& number, const FormatSpec& spec, char type);
// `digits` in groups after its sign, filled up to the width.
Text NumberField(const NumberText& digits, bool negative, const FormatSpec& spec);
// `text` filled up to the width, at the left end unless the spec says otherwise.
Text TextField(Text text, const FormatSpec& spec);

}  // namespace hearth::jinja
