#include "text/jinja/values/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/values/characters.h"

namespace hearth::jinja {
namespace {

TextView Stripped(TextView text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

// Takes "0x" and the like where `base` allows; the base that the digits have.
int TakePrefix(TextView& text, int base) {
  if (text.size() < 2 || Plain(text[0]) != '0') return base == 0 ? 10 : base;
  const char32_t letter = Plain(text[1]) | 0x20;
  const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (prefix == 0 || (base != 0 && base != prefix)) return base == 0 ? 10 : base;
  text.remove_prefix(2);
  if (!text.empty() && Plain(text[0]) == '_') text.remove_prefix(1);
  return prefix;
}

int DigitValue(char32_t c) {
  c = Plain(c);
  if (c >= 'a' && c <= 'z') return static_cast<int>(c - 'a') + 10;
  if (c >= 'A' && c <= 'Z') return static_cast<int>(c - 'A') + 10;
  return DecimalValue(c);
}

}  // namespace

std::partial_ordering CompareNumbers(Int integer, double real) {
  constexpr double kBound = 0x1p127;  // of Int
  if (std::isnan(real)) return std::partial_ordering::unordered;
  if (real >= kBound) return std::partial_ordering::less;
  if (real < -kBound) return std::partial_ordering::greater;
  const auto whole = static_cast<Int>(real);
  if (integer != whole) return integer <=> whole;
  return 0.0 <=> real - std::trunc(real);
}

std::string IntText(Int value) { return fmt::format("{}", value); }

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string scientific(buffer, end.ptr);  // "-1.25e+02"
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  // Python switches to exponents where the number would have many zeros.
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::optional<Int> ParseInt(TextView text, int base) {
  text = Stripped(text);
  const bool negative = !text.empty() && Plain(text[0]) == '-';
  if (!text.empty() && (negative || Plain(text[0]) == '+')) text.remove_prefix(1);
  const bool any_base = base == 0;
  const size_t before = text.size();
  base = TakePrefix(text, base);
  const bool has_prefix = text.size() != before;
  if (text.empty()) return std::nullopt;
  Int value = 0;
  bool after_digit = false;
  bool only_zeros = true;
  for (const char32_t c : text) {
    if (Plain(c) == '_') {
      if (!after_digit) return std::nullopt;
      after_digit = false;
      continue;
    }
    const int digit = DigitValue(c);
    if (digit < 0 || digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Int>(digit), &value)) {
      return std::nullopt;
    }
    only_zeros = only_zeros && digit == 0;
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  // As in Python's own sources: "010" is no number.
  if (any_base && !has_prefix && Plain(text[0]) == '0' && !only_zeros) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> ParseFloat(TextView text) {
  text = Stripped(text);
  std::string ascii;
  bool after_digit = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = DecimalValue(text[i]);
    if (Plain(text[i]) == '_') {
      if (!after_digit || i + 1 == text.size() || DecimalValue(text[i + 1]) < 0)
        return std::nullopt;
      continue;
    }
    after_digit = digit >= 0;
    if (digit < 0 && Plain(text[i]) >= 0x80) return std::nullopt;
    ascii += digit >= 0 ? static_cast<char>('0' + digit)
                        : static_cast<char>(Plain(text[i]) | (IsLetter(text[i]) ? 0x20 : 0));
  }
  const bool has_sign = !ascii.empty() && (ascii[0] == '+' || ascii[0] == '-');
  const std::string body = ascii.substr(has_sign ? 1 : 0);
  const double sign = has_sign && ascii[0] == '-' ? -1 : 1;
  if (body == "inf" || body == "infinity") return sign * HUGE_VAL;
  if (body == "nan") return std::nan("");
  if (body.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  double value = 0;
  const auto end = std::from_chars(body.data(), body.data() + body.size(), value);
  if (end.ptr != body.data() + body.size() || body.empty() || body[0] == '-') return std::nullopt;
  if (end.ec == std::errc::result_out_of_range) value = std::strtod(body.c_str(), nullptr);
  return sign * value;
}

double RoundFloat(double value, int digits) {
  if (!std::isfinite(value) || value == 0 || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
  }
  const double unit = std::pow(10.0, -digits);
  return std::nearbyint(value / unit) * unit;
}

}  // namespace hearth::jinja
