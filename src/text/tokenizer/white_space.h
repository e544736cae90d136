// White space of ASCII: what texts around values and names are freed of.
#pragma once

#include <string_view>

namespace hearth {

// Between the parts of a JSON text.
inline bool IsJsonSpace(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

inline constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

inline std::string_view TrimEnd(std::string_view text) {
  const size_t last = text.find_last_not_of(kWhiteSpace);
  return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

inline std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kWhiteSpace);
  return first == std::string_view::npos ? std::string_view() : TrimEnd(text.substr(first));
}

}  // namespace hearth
