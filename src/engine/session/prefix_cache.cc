#include "engine/session/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace hearth {

std::optional<PrefixCache::Entry> PrefixCache::Insert(const CachedText& text, KvSequence kv) {
  if (text.tokens.empty()) return std::nullopt;
  std::erase_if(entries_, [&](const Entry& entry) {
    return CommonPrefix(entry.text(), text) == std::ssize(entry.tokens);
  });
  entries_.push_front({{text.tokens.begin(), text.tokens.end()}, text.adapters, std::move(kv)});
  return entries_.size() > most_entries_ ? TakeOldest() : std::nullopt;
}

int64_t PrefixCache::LongestCommon(const CachedText& text) const {
  int64_t longest = 0;
  for (const Entry& entry : entries_) longest = std::max(longest, CommonPrefix(entry.text(), text));
  return longest;
}

std::optional<KvSequence> PrefixCache::Fork(const CachedText& text) {
  const int64_t common = LongestCommon(text);
  if (common == 0) return std::nullopt;
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& candidate) {
    return CommonPrefix(candidate.text(), text) == common;
  });
  entries_.splice(entries_.begin(), entries_, entry);
  entry->last_used = std::chrono::system_clock::now();
  KvSequence fork = entry->kv.Fork();
  fork.Truncate(common);
  return fork;
}

std::optional<PrefixCache::Entry> PrefixCache::TakeOldest() {
  if (entries_.empty()) return std::nullopt;
  std::optional<Entry> taken = std::move(entries_.back());
  entries_.pop_back();
  return taken;
}

std::optional<PrefixCache::Entry> PrefixCache::TakeNewest() {
  if (entries_.empty()) return std::nullopt;
  std::optional<Entry> taken = std::move(entries_.front());
  entries_.pop_front();
  return taken;
}

PrefixCache::Entry* PrefixCache::OldestUnsettled() {
  const auto entry = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [](const Entry& candidate) { return !candidate.is_settled; });
  return entry == entries_.rend() ? nullptr : &*entry;
}

int64_t PrefixCache::SettledPages() const {
  int64_t pages = 0;
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && entry->is_settled; ++entry) {
    pages += entry->kv.num_pages();
  }
  return pages;
}

}  // namespace hearth
