// The least often used goes, counts fade, and every layer has a clock of its own. Internal to
// src/cache.
//
// A key's count gains 1 with an access and halves in kHalfLife turns of its layer: a turn is a run
// of batches of that layer, usually one, in a token. Layers take turns in a ring, so that of two
// keys with equal counts the one whose layer is next is worth more than the one whose layer was
// just served; LRU, which orders by time, thinks the opposite.
//
// Counts are kept as levels (UseLevels, KeyNode::value). Entries lie in one list per layer and
// level; a turn moves the layer's clock. The victim is the oldest entry of the lowest level of all
// layers; among layers with the same lowest level, of the one that was served last and is farthest
// from its next turn. While batches of one layer follow each other (a prompt) the other layers'
// entries go first. Counts of absent keys are kept too: who comes back is no stranger.
//
// With one layer this is LFU with decay per token (lfu-decay); with all of them it is layer-lfu.
// Half-life and rules were chosen by replay: docs/decisions/0008-cache-policy.md.
#pragma once

#include <vector>

#include "cache/layer_turns.h"
#include "cache/policy.h"
#include "cache/use_levels.h"

namespace hearth::cache {

class LfuPolicy final : public Policy {
 public:
  LfuPolicy(std::span<KeyNode> nodes, int32_t num_layers);

  void Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept override;
  void Insert(int32_t key) noexcept override;
  int32_t TakeVictim() noexcept override;
  void Seed(int32_t key, int64_t rank, int64_t count) noexcept override;
  void EndToken() noexcept override { turns_.EndToken(); }

  // Turns in which a count halves.
  static constexpr int kHalfLife = 4;
  static constexpr int kLevelsPerTurn = 2;
  static constexpr int kLevelsPerOctave = kHalfLife * kLevelsPerTurn;
  // A count of 12. A key that is used in every turn tends to 6; a prompt, which is one turn however
  // often it uses a key, must not outweigh what comes after it for long.
  static constexpr int32_t kTopLevel = 29;
  // A count of 1/16; entries below it are told apart by age alone.
  static constexpr int32_t kLowLevel = -32;

 private:
  static constexpr int kLevels = 64;  // a ring of lists per layer, at least those between the two
  static constexpr int kLists = kLevels + 1;  // and one for all below
  static_assert(kTopLevel - kLowLevel + 1 <= kLevels);

  struct Layer {
    int32_t clock = 0;   // levels that all counts have lost
    int32_t lowest = 0;  // no entry of the ring has a lower value
  };

  int ListOf(int32_t layer, int32_t value) const noexcept;
  void TakeTurn(int32_t layer) noexcept;
  void Use(int32_t layer, int32_t key) noexcept;
  void Place(int32_t layer, int32_t key, int32_t value) noexcept;
  // The lowest level of an entry of the layer that is not in use; INT32_MAX where there is none.
  int32_t LowestLevel(int32_t layer) noexcept;

  const UseLevels levels_;
  std::vector<Layer> layers_;
  LayerTurns turns_;
  int victims_ = -1;  // list that the batch's last victim came from
};

}  // namespace hearth::cache
