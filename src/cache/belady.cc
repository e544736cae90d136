#include "cache/belady.h"

#include <algorithm>
#include <numeric>

namespace hearth {
namespace {

constexpr int32_t kNoUse = -1;

}  // namespace

BeladyBound::BeladyBound(std::span<const int32_t> keys, std::span<const size_t> batch_ends,
                         int64_t num_keys)
    : next_use_(keys.size()), batch_ends_(batch_ends.begin(), batch_ends.end()) {
  std::vector<int32_t> next(static_cast<size_t>(num_keys), kNoUse);
  for (size_t batch = batch_ends_.size(); batch-- > 0;) {
    for (size_t i = batch == 0 ? 0 : batch_ends_[batch - 1]; i < batch_ends_[batch]; ++i) {
      int32_t& next_use = next[static_cast<size_t>(keys[i])];
      next_use_[i] = next_use;
      next_use = static_cast<int32_t>(batch);
    }
  }
}

int64_t BeladyBound::Hits(int64_t num_slots) const {
  // Keys that are held are alike but for the batch that uses them next.
  std::vector<int64_t> held(batch_ends_.size(), 0);
  int64_t num_held = 0;
  int64_t hits = 0;
  size_t farthest = 0;  // no held key is used later
  size_t access = 0;
  for (size_t batch = 0; batch < batch_ends_.size(); ++batch) {
    hits += held[batch];
    num_held -= held[batch];
    held[batch] = 0;
    for (; access < batch_ends_[batch]; ++access) {
      const int32_t next = next_use_[access];
      if (next == kNoUse) continue;
      ++held[static_cast<size_t>(next)];
      ++num_held;
      farthest = std::max(farthest, static_cast<size_t>(next));
    }
    while (num_held > num_slots) {
      while (held[farthest] == 0) --farthest;
      const int64_t leaving = std::min(held[farthest], num_held - num_slots);
      held[farthest] -= leaving;
      num_held -= leaving;
    }
  }
  return hits;
}

WorkingSet WorkingSetOf(std::span<const int64_t> layer_keys) {
  WorkingSet set;
  set.keys = std::accumulate(layer_keys.begin(), layer_keys.end(), int64_t{0});
  for (const int64_t keys : layer_keys) {
    set.lru_hits_nothing = std::max(set.lru_hits_nothing, keys);
  }
  set.lru_hits_nothing = set.keys - set.lru_hits_nothing;
  return set;
}

}  // namespace hearth
