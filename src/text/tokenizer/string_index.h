// A hash index from text to token id that does not store the texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Eight bytes per slot where a map of strings would need eighty: vocabularies have 10^5 entries.
// Texts live with the owner, who passes the same `text_of` (id to string_view) to every call.
class StringIndex {
 public:
  // For at most `max_entries` calls of Insert.
  explicit StringIndex(size_t max_entries = 0) {
    size_t slots = 16;
    while (slots < max_entries * 2) slots *= 2;
    slots_.resize(slots);
  }

  // Keeps the first id where two have the same text.
  template <typename TextOf>
  void Insert(TokenId id, const TextOf& text_of) {
    const std::string_view text = text_of(id);
    const size_t hash = std::hash<std::string_view>()(text);
    Slot& slot = slots_[FindSlot(text, hash, text_of)];
    if (slot.id < 0) slot = {id, Tag(hash)};
  }

  // -1 where no text inserted equals `text`.
  template <typename TextOf>
  TokenId Find(std::string_view text, const TextOf& text_of) const {
    return slots_[FindSlot(text, std::hash<std::string_view>()(text), text_of)].id;
  }

 private:
  struct Slot {
    TokenId id = -1;
    uint32_t tag = 0;  // bits of the hash: spares most comparisons of unequal texts
  };

  static uint32_t Tag(size_t hash) { return static_cast<uint32_t>(hash >> 32); }

  // The slot that holds `text`, or the free one where it would go.
  template <typename TextOf>
  size_t FindSlot(std::string_view text, size_t hash, const TextOf& text_of) const {
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].id >= 0) {
      if (slots_[at].tag == Tag(hash) && text_of(slots_[at].id) == text) break;
      at = (at + 1) & mask;
    }
    return at;
  }

  std::vector<Slot> slots_;  // a power of two, never more than half full
};

}  // namespace hearth
