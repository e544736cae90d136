// The extents of some FFNs of one layer: where the cache has them, and which must be read.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cache/cache_entry.h"
#include "cache/neuron_cache.h"
#include "pipeline/extents/extent_map.h"
#include "pipeline/extents/extent_reader.h"

namespace hearth {

// One thread at a time. Map and cache must outlive it, and every LookUp is followed by Release.
class ExtentBatch {
 public:
  ExtentBatch(const ExtentMap& map, NeuronCache& cache) : map_(&map), cache_(&cache) {}

  // Looks up all extents of these FFNs, distinct and ascending. Returns how many are absent.
  int64_t LookUp(int64_t layer, std::span<const int32_t> experts);
  bool is_empty() const { return layer_ < 0; }
  int64_t layer() const { return layer_; }
  int64_t size() const { return std::ssize(offsets_); }

  // Puts FFNs that are in memory whole before the others; each part keeps its order.
  void PutPresentFirst(std::span<int32_t> experts);
  // Asks for what is absent of these FFNs, in their order.
  void AskForMissing(ExtentReader& reader, std::span<const int32_t> experts) const;

  // Which entries are of a matrix of an FFN: from the first to before the second.
  std::pair<size_t, size_t> EntriesOf(int64_t expert, FfnMatrix which) const;
  // The entry of an extent that was looked up.
  size_t IndexOf(int32_t key) const { return IndexOfOffset(key - map_->FirstKey(layer_)); }
  int32_t KeyOf(size_t index) const { return map_->FirstKey(layer_) + offsets_[index]; }
  const CacheEntry& entry(size_t index) const { return entries_[index]; }
  bool is_here(size_t index) const { return entries_[index].found == CacheFound::kHit; }

  // An extent that was absent and got a slot is in it now.
  void SetLoaded(size_t index);
  // Hands all slots back; what was not loaded by then is absent again.
  void Release() noexcept;

 private:
  size_t IndexOfOffset(int32_t offset) const;

  const ExtentMap* map_;
  NeuronCache* cache_;
  int64_t layer_ = -1;            // -1: nothing is looked up
  std::vector<int32_t> offsets_;  // of extents in the layer, ascending
  std::vector<CacheEntry> entries_;
  std::vector<bool> loaded_;  // of misses
  std::vector<int32_t> missing_experts_;
};

}  // namespace hearth
