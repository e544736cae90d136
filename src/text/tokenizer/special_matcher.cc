#include "text/tokenizer/special_matcher.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace hearth {

SpecialMatcher::SpecialMatcher(std::vector<Entry> entries) : entries_(std::move(entries)) {
  const auto before = [](const Entry& a, const Entry& b) { return a.text < b.text; };
  const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  const auto no_text = [](const Entry& entry) { return entry.text.empty(); };
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(), no_text), entries_.end());
  std::stable_sort(entries_.begin(), entries_.end(), before);
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  for (const Entry& entry : entries_) can_begin_[static_cast<uint8_t>(entry.text[0])] = true;
}

SpecialMatcher::Match SpecialMatcher::FindNext(std::string_view text, size_t from) const {
  if (entries_.empty()) return {};
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!can_begin_[static_cast<uint8_t>(text[begin])]) continue;
    const Match match = LongestAt(text, begin);
    if (match.length > 0) return match;
  }
  return {};
}

// Entries that agree with the text in their first `depth` bytes are neighbours in the sorted
// list; the range shrinks byte by byte, and an entry that ends at `depth` stands first in it.
SpecialMatcher::Match SpecialMatcher::LongestAt(std::string_view text, size_t begin) const {
  Match best;
  auto low = entries_.begin();
  auto high = entries_.end();
  for (size_t depth = 0; begin + depth < text.size() && low != high; ++depth) {
    const auto wanted = static_cast<uint8_t>(text[begin + depth]);
    const auto byte_at = [depth](const Entry& entry) {
      return static_cast<uint8_t>(entry.text[depth]);
    };
    low = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) < wanted; });
    high = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) <= wanted; });
    if (low != high && low->text.size() == depth + 1) {
      best = {begin, depth + 1, low->id};
      ++low;
    }
  }
  return best;
}

}  // namespace hearth
