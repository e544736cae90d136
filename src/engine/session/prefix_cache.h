// Sequences that ended, kept for those that begin as they do: a conversation that continues finds
// its past here and does not compute it again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "engine/session/cached_text.h"
#include "kv/kv_cache.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Holds pages of a KvPool until they are taken from it: whoever needs pages evicts. One thread at a
// time; the pool must outlive it.
class PrefixCache {
 public:
  struct Entry {
    std::vector<TokenId> tokens;
    uint64_t adapters = 0;  // AdapterMix::key()
    KvSequence kv;
    std::chrono::system_clock::time_point last_used = std::chrono::system_clock::now();
    bool is_settled = false;  // it is saved, or being saved, or cannot be

    CachedText text() const { return {tokens, adapters}; }
  };

  explicit PrefixCache(size_t most_entries) : most_entries_(most_entries) {}

  // Keeps a sequence and the text that is cached in it, as the one used last. What is a prefix of
  // it is forgotten. Returns the oldest where there are too many.
  std::optional<Entry> Insert(const CachedText& text, KvSequence kv);

  // Tokens of the longest beginning of `text` that is here; 0 for none.
  int64_t LongestCommon(const CachedText& text) const;
  // A sequence with the first LongestCommon(text) tokens of it, which shares pages; nothing where
  // there are none.
  std::optional<KvSequence> Fork(const CachedText& text);

  // Take the one that was not used for longest, or the one used last, out of the cache.
  std::optional<Entry> TakeOldest();
  std::optional<Entry> TakeNewest();
  // The oldest that is not settled, null where all are; and pages of those that are older, which
  // count more than once where they share them.
  Entry* OldestUnsettled();
  bool is_oldest_settled() const { return !entries_.empty() && entries_.back().is_settled; }
  int64_t SettledPages() const;

  size_t size() const { return entries_.size(); }

 private:
  const size_t most_entries_;
  std::list<Entry> entries_;  // the one used last in front
};

}  // namespace hearth
