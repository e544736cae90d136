#include "text/jinja/number_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/failure.h"

namespace hearth::jinja {
namespace {

constexpr Int kMaxPrecision = 1000;

// 1234567 as 1,234,567; what follows the digits stays.
std::string Grouped(const std::string& number, char separator, size_t size) {
  const size_t digits = std::min(number.find_first_not_of("0123456789abcdefABCDEF"), number.size());
  std::string out;
  for (size_t i = 0; i < digits; ++i) {
    if (i > 0 && (digits - i) % size == 0) out += separator;
    out += number[i];
  }
  return out + number.substr(digits);
}

std::string FloatDigits(double value, const FormatSpec& spec, char type) {
  value = std::fabs(value);
  if (!std::isfinite(value)) {
    const std::string text = std::isnan(value) ? "nan" : "inf";
    return type >= 'A' && type <= 'Z' ? (std::isnan(value) ? "NAN" : "INF") : text;
  }
  const auto precision = static_cast<int>(std::min(spec.precision.value_or(6), kMaxPrecision));
  const std::string form =
      fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", precision, type == '%' ? 'f' : type);
  std::string digits = fmt::format(fmt::runtime(form), type == '%' ? value * 100 : value);
  return type == '%' ? digits + "%" : digits;
}

std::string IntDigits(Int value, const FormatSpec& spec, char type) {
  const auto magnitude =
      value < 0 ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  switch (type) {
    case 'x':
      return (spec.alternate ? "0x" : "") + fmt::format("{:x}", magnitude);
    case 'X':
      return (spec.alternate ? "0X" : "") + fmt::format("{:X}", magnitude);
    case 'o':
      return (spec.alternate ? "0o" : "") + fmt::format("{:o}", magnitude);
    case 'b':
      return (spec.alternate ? "0b" : "") + fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
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

std::string Digits(const Value& number, const FormatSpec& spec, char type) {
  const bool is_float = std::string_view("eEfFgG%").find(type) != std::string_view::npos;
  std::string digits =
      is_float ? FloatDigits(number.real(), spec, type) : IntDigits(number.integer(), spec, type);
  if (spec.group != 0) {
    digits = Grouped(digits, spec.group,
                     std::string_view("xXob").find(type) == std::string::npos ? 3 : 4);
  }
  return digits;
}

Text NumberField(const std::string& digits, bool negative, const FormatSpec& spec) {
  std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  if (spec.align == '=') {
    Text out = Own(sign);
    Fill(out, spec.width - static_cast<Int>(sign.size() + digits.size()), spec.fill);
    return out + Own(digits);
  }
  FormatSpec aligned = spec;
  if (aligned.align == 0) aligned.align = '>';
  return TextField(Own(sign + digits), aligned);
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
