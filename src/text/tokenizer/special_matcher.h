// Finds special tokens written out in a text.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace hearth {

class SpecialMatcher {
 public:
  struct Entry {
    std::string_view text;  // must outlive the matcher
    TokenId id = -1;
  };
  struct Match {
    size_t begin = 0;
    size_t length = 0;  // 0: none
    TokenId id = -1;
  };

  // Empty texts are left out; of entries with the same text the first counts.
  explicit SpecialMatcher(std::vector<Entry> entries = {});

  bool empty() const { return entries_.empty(); }

  // The leftmost match at or after `from`; where several begin there, the longest.
  Match FindNext(std::string_view text, size_t from) const;

 private:
  Match LongestAt(std::string_view text, size_t begin) const;

  std::vector<Entry> entries_;  // sorted by text, no duplicates
  std::array<bool, 256> can_begin_ = {};
};

}  // namespace hearth
