// Alone in its file: the fuzzer of requests needs nothing else of this folder.
#include <algorithm>

#include "hearth/hearth.hpp"

namespace hearth::api {

bool IsFunctionName(const std::string& name) {
  constexpr size_t kLongest = 64;
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kLongest &&
         std::all_of(name.begin(), name.end(), is_letter);
}

}  // namespace hearth::api
