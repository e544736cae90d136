// Evicts from the group of similar entries that is used least. Internal to src/cache.
//
// Two counts of a key fade in turns of its layer (a run of batches of that layer, usually one, in a
// token): a fast one, which halves in 4 turns, says what the text is about, a slow one, which
// halves in 256, how often the key is used at all. Texts differ in which of the two tells more, so
// the policy learns it: entries with like counts form a cell, and a cell's density is the share of
// its entries that a turn used lately (HitDensities). The victim is the oldest entry of the least
// dense cell that has one; of layers that have one, of the layer that was served last and is
// farthest from its next turn. While batches of one layer follow each other (a prompt) the other
// layers' entries go first. The idea of hit density is LHD's (Beckmann, Chen, Cidon: "LHD:
// Improving Cache Hit Rate by Maximizing Hit Density", NSDI 2018); cells, counts and turns are not.
//
// Entries of a layer lie in one list per band of four fast levels and slow class, and those whose
// fast count is next to nothing in one per slow class, by age. Bands are of stored levels
// (UseLevels), so that time moves no entry but those that fall out of the lowest. What class of the
// slow count an entry is in is looked at when it is used. docs/decisions/0008-cache-policy.md.
#pragma once

#include <vector>

#include "cache/hit_densities.h"
#include "cache/layer_turns.h"
#include "cache/policy.h"
#include "cache/use_levels.h"

namespace hearth::cache {

class HitDensityPolicy final : public Policy {
 public:
  HitDensityPolicy(std::span<KeyNode> nodes, int32_t num_layers);

  void Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept override;
  void Insert(int32_t key) noexcept override;
  int32_t TakeVictim() noexcept override;
  void Seed(int32_t key, int64_t rank, int64_t count) noexcept override;
  void EndToken() noexcept override;

  // Of the fast count: it halves in four turns.
  static constexpr int32_t kLevelsPerTurn = 2;
  static constexpr int kLevelsPerOctave = 4 * kLevelsPerTurn;
  static constexpr int32_t kTopLevel = 29;   // a count of 12; in every turn it tends to 6
  static constexpr int32_t kLowLevel = -32;  // a count of 1/16; below it nothing is told apart
  static constexpr int32_t kBandLevels = 4;
  static constexpr int kBands = 16;  // a ring
  static_assert(kTopLevel - kLowLevel + 1 + kLevelsPerTurn <= kBands * kBandLevels);
  // Of the slow count, which loses a level per turn: it halves in 256 turns. Its steps are so fine
  // that a use of a key that is used in every turn, a count of 370, is still one.
  static constexpr int kSlowLevelsPerOctave = 256;
  static constexpr int kSlowClasses = 9;  // octaves
  static constexpr int32_t kTopSlowLevel = kSlowClasses * kSlowLevelsPerOctave - 1;
  static constexpr int32_t kLowSlowLevel = -4 * kSlowLevelsPerOctave;
  // A band is in one of 32 places below the clock, where it stays for a turn.
  static constexpr int32_t kPlaceLevels = kLevelsPerTurn;
  static constexpr int kPlaces = 1 + kBands * kBandLevels / kPlaceLevels;  // the lowest: by age
  static constexpr int kCells = kPlaces * kSlowClasses;
  static constexpr int kLists = (kBands + 1) * kSlowClasses;  // of a layer

  // What the densities of cells are taken for at first.
  static std::vector<double> Priors();

 private:
  struct Layer {
    int32_t turns = 0;

    int32_t clock() const { return turns * kLevelsPerTurn; }  // fast levels that are lost
    int32_t slow_clock() const { return turns; }              // slow ones
  };

  void TakeTurn(int32_t layer) noexcept;
  void OfferAll(int32_t layer) noexcept;
  void Use(int32_t layer, int32_t key) noexcept;
  void Place(int32_t layer, int32_t key) noexcept;
  int CellOf(int32_t layer, int list) const noexcept;
  int ListOf(int32_t layer, int cell) const noexcept;
  int32_t TakeFrom(int32_t layer, int cell) noexcept;

  const UseLevels fast_levels_, slow_levels_;
  std::vector<Layer> layers_;
  LayerTurns turns_;
  HitDensities densities_;
  size_t next_cell_ = 0;  // of the order: cells before it have no entry for this batch
  int victims_ = -1;      // list that the batch's last victim came from
};

}  // namespace hearth::cache
