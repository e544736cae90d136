// What keys and values in a cache are of: tokens, computed with certain adapters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Refers to tokens that somebody else owns.
struct CachedText {
  std::span<const TokenId> tokens;
  uint64_t adapters = 0;  // AdapterMix::key()

  CachedText(std::span<const TokenId> text, uint64_t key = 0) : tokens(text), adapters(key) {}
  CachedText(const std::vector<TokenId>& text, uint64_t key = 0) : tokens(text), adapters(key) {}

  int64_t length() const { return std::ssize(tokens); }
};

// How many tokens two texts begin with in common; none where their adapters differ, because their
// keys and values do.
inline int64_t CommonPrefix(const CachedText& a, const CachedText& b) {
  if (a.adapters != b.adapters) return 0;
  return std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end()).first -
         a.tokens.begin();
}

}  // namespace hearth
