#include "text/jinja/values/number_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "text/jinja/values/failure.h"

namespace hearth::jinja {
namespace {

constexpr Int kMaxPrecision = 1000;

char AsciiUpper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// 1234567 as 1,234,567, with zeros in front up to `min_size` characters (a zero more where that
// would begin with a separator).
std::string Grouped(const std::string& digits, char separator, Int size, Int min_size) {
  std::string reversed;
  auto left = static_cast<Int>(digits.size());
  for (;;) {
    const Int count = std::min(size, std::max({left, min_size, Int{1}}));
    for (Int i = 0; i < count; ++i) {
      reversed += left > 0 ? digits[static_cast<size_t>(--left)] : '0';
    }
    min_size -= count;
    if (left <= 0 && min_size <= 0) break;
    reversed += separator;
    --min_size;
  }
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

// Without zeros after the point, and without the point where only zeros follow.
void DropZeros(std::string& digits) {
  if (digits.find('.') == std::string::npos) return;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
}

// So many significant digits, with an exponent where the number is very small or has more digits
// before the point. `like_str`: there is a digit after the point, for which one before it goes.
std::string GeneralDigits(double magnitude, Int precision, bool keep_zeros, bool like_str) {
  const auto significant = static_cast<int>(std::max<Int>(precision, 1));
  std::string digits = fmt::format("{:.{}e}", magnitude, significant - 1);
  const size_t e = digits.find('e');
  const int exponent = std::atoi(digits.c_str() + e + 1);
  std::string tail = digits.substr(e);
  digits.resize(e);
  if (exponent >= -4 && exponent < significant - (like_str ? 1 : 0)) {
    digits = fmt::format("{:.{}f}", magnitude, significant - 1 - exponent);
    tail.clear();
  }
  if (!keep_zeros) DropZeros(digits);
  if (like_str && tail.empty() && digits.find('.') == std::string::npos) digits += ".0";
  return digits + tail;
}

// `type`: one of e f g %, or 0.
std::string FloatDigits(double magnitude, const FormatSpec& spec, char type) {
  if (std::isnan(magnitude)) return "nan";
  if (std::isinf(magnitude)) return "inf";
  const Int precision = std::min(spec.precision.value_or(6), kMaxPrecision);
  std::string digits;
  if (type == 'g' || (type == 0 && spec.precision)) {
    digits = GeneralDigits(magnitude, precision, spec.alternate, type == 0);
  } else if (type == 0) {
    digits = FloatText(magnitude);
  } else if (type == 'e') {
    digits = fmt::format("{:.{}e}", magnitude, static_cast<int>(precision));
  } else {
    digits = fmt::format("{:.{}f}", type == '%' ? magnitude * 100 : magnitude,
                         static_cast<int>(precision));
  }
  if (spec.alternate && digits.find('.') == std::string::npos) {
    digits.insert(std::min(digits.find('e'), digits.size()), ".");
  }
  return digits;
}

NumberText OfFloat(double value, const FormatSpec& spec, char type) {
  const bool is_upper = type >= 'A' && type <= 'Z';
  const char lower = is_upper ? static_cast<char>(type - 'A' + 'a') : type;
  std::string digits = FloatDigits(std::fabs(value), spec, lower);
  if (is_upper) std::transform(digits.begin(), digits.end(), digits.begin(), AsciiUpper);
  if (type == '%') digits += '%';
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  return {"", digits.substr(0, whole), digits.substr(whole)};
}

NumberText OfInteger(Int value, const FormatSpec& spec, char type) {
  const auto magnitude =
      value < 0 ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  const auto prefixed = [&](const char* prefix, std::string digits) -> NumberText {
    return {spec.alternate ? prefix : "", std::move(digits), ""};
  };
  switch (type) {
    case 'x':
      return prefixed("0x", fmt::format("{:x}", magnitude));
    case 'X':
      return prefixed("0X", fmt::format("{:X}", magnitude));
    case 'o':
      return prefixed("0o", fmt::format("{:o}", magnitude));
    case 'b':
      return prefixed("0b", fmt::format("{:b}", magnitude));
    default:
      return {"", fmt::format("{}", magnitude), ""};
  }
}

void Fill(Text& out, Int count, char32_t fill) {
  for (Int i = 0; i < count; ++i) out += fill;
}

}  // namespace

bool IsNegative(const Value& number) {
  return number.Is(Kind::kFloat) ? std::signbit(number.real()) && !std::isnan(number.real())
                                 : number.integer() < 0;
}

Text AsciiOnly(const Text& text) {
  Text out;
  for (const char32_t c : text) {
    if (Plain(c) < 0x80) {
      out += c;
      continue;
    }
    const char* form = Plain(c) < 0x100     ? "\\x{:02x}"
                       : Plain(c) < 0x10000 ? "\\u{:04x}"
                                            : "\\U{:08x}";
    const auto code_point = static_cast<uint32_t>(Plain(c));
    for (const char letter : fmt::format(fmt::runtime(form), code_point)) {
      out += MarkedLike(static_cast<unsigned char>(letter), c);
    }
  }
  return out;
}

NumberText Digits(const Value& number, const FormatSpec& spec, char type) {
  const bool is_float = std::string_view("eEfFgG%").find(type) != std::string_view::npos ||
                        (type == 0 && number.Is(Kind::kFloat));
  return is_float ? OfFloat(number.real(), spec, type) : OfInteger(number.integer(), spec, type);
}

Text NumberField(const NumberText& digits, bool negative, const FormatSpec& spec) {
  const char* sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  const std::string head = sign + digits.prefix;
  std::string tail = digits.whole + digits.rest;
  if (spec.group != 0 && !digits.whole.empty()) {
    const bool fills_with_zeros = spec.align == '=' && Plain(spec.fill) == '0';
    const auto around = static_cast<Int>(head.size() + digits.rest.size());
    const Int size = std::string_view("xXob").find(spec.type) == std::string_view::npos ? 3 : 4;
    tail = Grouped(digits.whole, spec.group, size, fills_with_zeros ? spec.width - around : 0) +
           digits.rest;
  }
  if (spec.align == '=') {
    Text out = Own(head);
    Fill(out, spec.width - static_cast<Int>(head.size() + tail.size()), spec.fill);
    return out + Own(tail);
  }
  FormatSpec aligned = spec;
  if (aligned.align == 0) aligned.align = '>';
  return TextField(Own(head + tail), aligned);
}

Text TextField(Text text, const FormatSpec& spec) {
  const Int missing = std::max<Int>(spec.width - static_cast<Int>(text.size()), 0);
  const Int left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  Text out;
  Fill(out, left, spec.fill);
  out += text;
  Fill(out, missing - left, spec.fill);
  return out;
}

}  // namespace hearth::jinja
