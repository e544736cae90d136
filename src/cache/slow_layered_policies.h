// Slow models of the policies that count time by layers. For tests only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "cache/hit_density_policy.h"
#include "cache/lfu_policy.h"
#include "cache/slow_policy.h"

namespace hearth {

class SlowLayeredPolicy : public SlowPolicy {
 public:
  SlowLayeredPolicy(int64_t num_keys, int64_t num_layers)
      : num_layers_(num_layers), keys_per_layer_(num_keys / num_layers) {}

  void BeginBatch(int32_t first_key) final {
    layer_ = first_key / keys_per_layer_;
    again_ = layer_ == last_layer_;
    last_layer_ = layer_;
    if (!again_) BeginTurn();
  }
  void EndToken() override { last_layer_ = -1; }

 protected:
  // Of layer_.
  virtual void BeginTurn() = 0;

  const int64_t num_layers_, keys_per_layer_;
  int64_t layer_ = 0;
  bool again_ = false;  // the batch before was of the same layer

 private:
  int64_t last_layer_ = -1;
};

// Counts that fade, key by key, and a search over all of them.
class SlowLfu final : public SlowLayeredPolicy {
 public:
  using SlowLayeredPolicy::SlowLayeredPolicy;

  void BeginTurn() override {
    for (auto& [key, level] : levels_) {
      if (key / keys_per_layer_ == layer_) level -= Policy::kLevelsPerTurn;
    }
    // From the lowest level up, what fell below all of them goes behind nothing that was there.
    for (int level = kBottom + 1; level <= Policy::kTopLevel; ++level) {
      Lists::node_type lists = lists_.extract({layer_, level});
      if (lists.empty()) continue;
      const int now = level - Policy::kLevelsPerTurn;
      auto& target = lists_[{layer_, std::max(now, kBottom)}];
      target.splice(target.begin(), lists.mapped());
    }
  }
  void Touch(int32_t key) override {
    Remove(key);
    Insert(key);
  }
  void Insert(int32_t key) override {
    const auto known = levels_.find(key);
    int level = 0;
    if (known != levels_.end() && known->second > kBottom) {
      const double count = 1 + std::exp2(double(known->second) / Policy::kLevelsPerOctave);
      level = static_cast<int>(std::lround(Policy::kLevelsPerOctave * std::log2(count)));
    }
    Place(key, std::min(level, Policy::kTopLevel));
  }
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) override {
    for (int level = kBottom; level <= Policy::kTopLevel; ++level) {
      for (int64_t back = 1; back < num_layers_; ++back) {
        if (const auto key = Take((layer_ - back + num_layers_) % num_layers_, level, held)) {
          return key;
        }
      }
      if (again_ && num_layers_ > 1) continue;
      if (const auto key = Take(layer_, level, held)) return key;
    }
    for (int level = kBottom; level <= Policy::kTopLevel; ++level) {
      if (const auto key = Take(layer_, level, held)) return key;
    }
    return std::nullopt;
  }
  void Remove(int32_t key) override {
    for (auto& [where, list] : lists_) list.remove(key);
  }
  void Seed(int32_t key, int64_t rank, int64_t count) override {
    Place(key, static_cast<int>(Policy::kTopLevel - rank * Policy::kTopLevel / count));
  }

 private:
  using Policy = cache::LfuPolicy;
  using Lists = std::map<std::pair<int64_t, int>, std::list<int32_t>>;  // by layer and level
  static constexpr int kBottom = Policy::kLowLevel - 1;

  void Place(int32_t key, int level) {
    levels_[key] = level;
    lists_[{key / keys_per_layer_, level}].push_front(key);
  }
  std::optional<int32_t> Take(int64_t layer, int level, const std::multiset<int32_t>& held) {
    const auto list = lists_.find({layer, level});
    return list == lists_.end() ? std::nullopt : TakeFromBack(list->second, held);
  }

  std::map<int32_t, int> levels_;  // of all keys that were ever used
  Lists lists_;
};

// Levels of all keys, and lists by where they stand; the densities are those of the policy.
class SlowHitDensity final : public SlowLayeredPolicy {
 public:
  using SlowLayeredPolicy::SlowLayeredPolicy;

  void BeginTurn() override {
    const int turns = ++turns_[layer_];
    // Bands of which no level is one any more join what is by age, the oldest first.
    for (auto& [where, list] : lists_) {
      const auto [layer, band, slow] = where;
      if (layer != layer_ || band == kByAge) continue;
      if ((band + 1) * Policy::kBandLevels > turns * Policy::kLevelsPerTurn + Policy::kLowLevel) {
        continue;
      }
      auto& by_age = lists_[{layer, kByAge, slow}];
      by_age.splice(by_age.begin(), list);
    }
    for (const auto& [where, list] : lists_) {
      if (std::get<0>(where) != layer_ || list.empty()) continue;
      densities_.Offer(CellOf(where), static_cast<int64_t>(list.size()));
    }
  }
  void Touch(int32_t key) override {
    for (auto& [where, list] : lists_) {
      if (std::find(list.begin(), list.end(), key) != list.end()) densities_.Hit(CellOf(where));
    }
    Remove(key);
    Insert(key);
  }
  void Insert(int32_t key) override {
    const int turns = turns_[layer_];
    const int clock = turns * Policy::kLevelsPerTurn;
    auto& [fast, slow] = values_.try_emplace(key, kNever, kNever).first->second;
    fast =
        clock + Used(fast - clock, Policy::kLevelsPerOctave, Policy::kLowLevel, Policy::kTopLevel);
    slow = turns + Used(slow - turns, Policy::kSlowLevelsPerOctave, Policy::kLowSlowLevel,
                        Policy::kTopSlowLevel);
    Place(key);
  }
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) override {
    const std::span<const int16_t> order = densities_.order();
    std::map<int, int64_t> ranks;
    for (const int16_t cell : order) ranks.emplace(cell, std::ssize(ranks));
    // The smallest of: after a batch of the same layer, the layer itself comes last.
    std::optional<std::tuple<bool, int64_t, int64_t>> best;
    std::list<int32_t>* victims = nullptr;
    for (auto& [where, list] : lists_) {
      if (std::all_of(list.begin(), list.end(), [&](int32_t k) { return held.count(k) > 0; })) {
        continue;
      }
      const int64_t back = (layer_ - std::get<0>(where) + num_layers_) % num_layers_;
      const std::tuple at = {again_ && back == 0, ranks.at(CellOf(where)), back};
      if (best && *best < at) continue;
      best = at;
      victims = &list;
    }
    return victims == nullptr ? std::nullopt : TakeFromBack(*victims, held);
  }
  void Remove(int32_t key) override {
    for (auto& [where, list] : lists_) list.remove(key);
  }
  void Seed(int32_t key, int64_t rank, int64_t count) override {
    values_[key] = {static_cast<int>(rank * Policy::kLowLevel / count),
                    static_cast<int>((count - rank) * 5 * Policy::kSlowLevelsPerOctave / count)};
    Place(key);
  }
  void EndToken() override {
    SlowLayeredPolicy::EndToken();
    densities_.EndToken();
  }

 private:
  using Policy = cache::HitDensityPolicy;
  using Where = std::tuple<int64_t, int, int>;  // layer, band, slow class
  static constexpr int kNever = -1000000;
  static constexpr int kByAge = -1000000;

  static int Used(int level, int per_octave, int low, int top) {
    if (level < low) return 0;
    const double count = 1 + std::exp2(double(level) / per_octave);
    return std::min(top, static_cast<int>(std::lround(per_octave * std::log2(count))));
  }
  void Place(int32_t key) {
    const int64_t layer = key / keys_per_layer_;
    const auto [fast, slow] = values_[key];
    const int octave =
        static_cast<int>(std::floor(double(slow - turns_[layer]) / Policy::kSlowLevelsPerOctave));
    const int band = static_cast<int>(std::floor(double(fast) / Policy::kBandLevels));
    lists_[{layer, band, std::clamp(octave, 0, Policy::kSlowClasses - 1)}].push_front(key);
  }
  int CellOf(const Where& where) {
    const auto [layer, band, slow] = where;
    if (band == kByAge) return slow;
    const int level = band * Policy::kBandLevels - turns_[layer] * Policy::kLevelsPerTurn;
    const int place = 1 + (level - Policy::kLowLevel + Policy::kPlaceLevels) / Policy::kPlaceLevels;
    return place * Policy::kSlowClasses + slow;
  }

  std::map<int64_t, int> turns_;
  std::map<int32_t, std::pair<int, int>> values_;  // of all keys that were ever used
  std::map<Where, std::list<int32_t>> lists_;
  cache::HitDensities densities_{Policy::Priors()};
};

}  // namespace hearth
