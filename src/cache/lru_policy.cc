#include "cache/lru_policy.h"

namespace hearth::cache {

void LruPolicy::Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept {
  for (size_t i = 0; i < entries.size(); ++i) {
    PrefetchAhead(batch, i);
    if (entries[i].slot >= 0) lists_.MoveToHead(0, batch.first_key + batch.offsets[i]);
  }
}

}  // namespace hearth::cache
