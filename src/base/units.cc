#include "base/units.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace hearth {
namespace {

// Power of two of a suffix, or -1 where it is none.
int SuffixShift(std::string_view suffix) {
  if (suffix.empty() || suffix == "B" || suffix == "b") return 0;
  const std::string_view rest = suffix.substr(1);
  if (!rest.empty() && rest != "B" && rest != "b" && rest != "iB") return -1;
  switch (suffix[0]) {
    case 'k':
    case 'K':
      return 10;
    case 'm':
    case 'M':
      return 20;
    case 'g':
    case 'G':
      return 30;
    case 't':
    case 'T':
      return 40;
    default:
      return -1;
  }
}

}  // namespace

uint64_t ParseSize(std::string_view text, std::string_view what) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto suffix = text.substr(static_cast<size_t>(end - text.data()));
  const int shift = error == std::errc() ? SuffixShift(suffix) : -1;
  const double bytes = shift < 0 ? -1 : std::ldexp(number, shift);
  if (!(bytes >= 0) || bytes > 0x1p62) {
    throw Error(ErrorCode::kInvalidArgument, what, "size", "a number like 512M or 2.5G",
                "'" + Printable(text) + "'");
  }
  return static_cast<uint64_t>(bytes);
}

std::string FormatSize(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kUnits[unit]);
}

}  // namespace hearth
