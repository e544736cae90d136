#include "cache/lfu_policy.h"

#include <algorithm>
#include <limits>

namespace hearth::cache {
namespace {

constexpr int32_t kNoLevel = std::numeric_limits<int32_t>::max();

}  // namespace

LfuPolicy::LfuPolicy(std::span<KeyNode> nodes, int32_t num_layers)
    : Policy(nodes, num_layers * kLists),
      levels_(kLevelsPerOctave, kLowLevel, kTopLevel),
      layers_(static_cast<size_t>(num_layers)),
      turns_(std::ssize(nodes), num_layers) {
  for (KeyNode& node : nodes) node.value = kNeverUsed;
  for (Layer& layer : layers_) layer.lowest = kTopLevel + 1;
}

int LfuPolicy::ListOf(int32_t layer, int32_t value) const noexcept {
  const int first = layer * kLists;
  const bool low = value - layers_[static_cast<size_t>(layer)].clock < kLowLevel;
  return first + (low ? kLevels : static_cast<int>(static_cast<uint32_t>(value) % kLevels));
}

void LfuPolicy::Place(int32_t layer, int32_t key, int32_t value) noexcept {
  lists_.node(key).value = value;
  lists_.PushHead(ListOf(layer, value), key);
  Layer& at = layers_[static_cast<size_t>(layer)];
  at.lowest = std::min(at.lowest, value);
}

void LfuPolicy::Use(int32_t layer, int32_t key) noexcept {
  const int32_t clock = layers_[static_cast<size_t>(layer)].clock;
  Place(layer, key, clock + levels_.Raised(lists_.node(key).value - clock));
}

// The lists of a ring move down; what falls off its low end joins the list below all.
void LfuPolicy::TakeTurn(int32_t layer) noexcept {
  Layer& at = layers_[static_cast<size_t>(layer)];
  for (int step = 0; step < kLevelsPerTurn; ++step) {
    const int leaving = ListOf(layer, at.clock + kLowLevel);
    ++at.clock;
    while (lists_.size(leaving) > 0) {
      lists_.MoveToHead(layer * kLists + kLevels, lists_.tail(leaving));
    }
  }
  at.lowest = std::max(at.lowest, at.clock + kLowLevel);
}

void LfuPolicy::Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept {
  victims_ = -1;
  if (entries.empty()) return;
  if (turns_.Begin(batch.key(0))) TakeTurn(turns_.current());
  for (size_t i = 0; i < entries.size(); ++i) {
    PrefetchAhead(batch, i);
    if (entries[i].slot < 0) continue;
    const int32_t key = batch.first_key + batch.offsets[i];
    lists_.Unlink(key);
    Use(turns_.current(), key);
  }
}

void LfuPolicy::Insert(int32_t key) noexcept { Use(turns_.current(), key); }

void LfuPolicy::Seed(int32_t key, int64_t rank, int64_t count) noexcept {
  const auto level = static_cast<int32_t>(kTopLevel - rank * kTopLevel / count);
  Place(turns_.LayerOf(key), key, level);
}

int32_t LfuPolicy::LowestLevel(int32_t layer) noexcept {
  Layer& at = layers_[static_cast<size_t>(layer)];
  if (lists_.unpinned(layer * kLists + kLevels) > 0) return kLowLevel - 1;
  for (int32_t value = at.lowest; value <= at.clock + kTopLevel; ++value) {
    const int list = ListOf(layer, value);
    if (lists_.unpinned(list) > 0) return value - at.clock;
    if (value == at.lowest && lists_.size(list) == 0) ++at.lowest;
  }
  return kNoLevel;
}

int32_t LfuPolicy::TakeVictim() noexcept {
  // While a batch is admitted nothing is released and what comes in is in use: the lowest list
  // stays the lowest.
  if (victims_ >= 0 && lists_.unpinned(victims_) > 0) return lists_.TakeUnpinned(victims_);
  int32_t best = kNoLevel;
  int32_t best_layer = 0;
  for (int32_t back = 1; back <= turns_.num_layers(); ++back) {
    if (back == turns_.num_layers() && turns_.goes_on() && best != kNoLevel) break;
    const int32_t layer = turns_.Back(back);
    const int32_t level = LowestLevel(layer);
    if (level < best) {
      best = level;
      best_layer = layer;
    }
  }
  if (best == kNoLevel) return kNoKey;
  victims_ = ListOf(best_layer, layers_[static_cast<size_t>(best_layer)].clock + best);
  return lists_.TakeUnpinned(victims_);
}

}  // namespace hearth::cache
