#include "base/error.h"

#include <fmt/format.h>

namespace hearth {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kOutOfBudget:
      return "out_of_budget";
    case ErrorCode::kContextFull:
      return "context_full";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string_view where, std::string_view what)
    : std::runtime_error(where.empty() ? std::string(what) : fmt::format("{}: {}", where, what)),
      code_(code),
      where_(where) {}

Error::Error(ErrorCode code, std::string_view where, std::string_view what,
             std::string_view expected, std::string_view found)
    : std::runtime_error(fmt::format("{}{}{}: expected {}, found {}", where,
                                     where.empty() ? "" : ": ", what, expected, found)),
      code_(code),
      where_(where),
      expected_(expected),
      found_(found) {}

Error::Error(ErrorCode code, Field field, std::string_view what) : Error(code, field.name, what) {
  field_ = field.name;
}

Error::Error(ErrorCode code, Field field, std::string_view what, std::string_view expected,
             std::string_view found)
    : Error(code, field.name, what, expected, found) {
  field_ = field.name;
}

std::string_view Error::problem() const noexcept {
  std::string_view problem = what();
  if (!where_.empty()) problem.remove_prefix(where_.size() + 2);
  return problem;
}

std::string Printable(std::string_view text, size_t max_chars) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (out.size() >= max_chars) return out + "...";
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      out += fmt::format("\\x{:02x}", c);
    }
  }
  return out;
}

}  // namespace hearth
