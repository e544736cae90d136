// Caches that tests drive, and a slow model of them to hold them against. For tests only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random_words.h"
#include "cache/hit_density_policy.h"
#include "cache/lfu_policy.h"
#include "cache/neuron_cache.h"

namespace hearth {

// What a policy does, in lists that are searched from end to end. Its keys are those with a slot.
class SlowPolicy {
 public:
  virtual ~SlowPolicy() = default;
  virtual void BeginBatch(int32_t /*first_key*/) {}
  virtual void Touch(int32_t key) = 0;
  virtual void Insert(int32_t key) = 0;
  // `held`: keys that must stay. Takes the victim out.
  virtual std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) = 0;
  virtual void Remove(int32_t key) = 0;
  virtual bool Admits(int32_t) const { return true; }
  virtual void Seed(int32_t key, int64_t /*rank*/, int64_t /*count*/) { Insert(key); }
  virtual void EndToken() {}
  // After EndToken, until there is none: a key that leaves although nothing needs its slot.
  virtual std::optional<int32_t> TakeExpired(const std::multiset<int32_t>& /*held*/) { return {}; }
};

// Takes the first key from the back that is not held; those behind it go to the front, in turn.
inline std::optional<int32_t> TakeFromBack(std::list<int32_t>& list,
                                           const std::multiset<int32_t>& held) {
  if (std::all_of(list.begin(), list.end(), [&](int32_t k) { return held.count(k) > 0; })) {
    return std::nullopt;
  }
  for (;;) {
    const int32_t key = list.back();
    list.pop_back();
    if (held.count(key) == 0) return key;
    list.push_front(key);
  }
}

class SlowLru final : public SlowPolicy {
 public:
  void Touch(int32_t key) override {
    list_.remove(key);
    list_.push_front(key);
  }
  void Insert(int32_t key) override { list_.push_front(key); }
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) override {
    return TakeFromBack(list_, held);
  }
  void Remove(int32_t key) override { list_.remove(key); }

 private:
  std::list<int32_t> list_;
};

class SlowTwoQueue final : public SlowPolicy {
 public:
  explicit SlowTwoQueue(int64_t num_slots)
      : most_active_(static_cast<size_t>(num_slots * 9 / 10)) {}

  void Touch(int32_t key) override {
    Remove(key);
    active_.push_front(key);
    while (active_.size() > most_active_) {
      inactive_.push_front(active_.back());
      active_.pop_back();
    }
  }
  void Insert(int32_t key) override { inactive_.push_front(key); }
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) override {
    const auto key = TakeFromBack(inactive_, held);
    return key ? key : TakeFromBack(active_, held);
  }
  void Remove(int32_t key) override {
    active_.remove(key);
    inactive_.remove(key);
  }
  void Seed(int32_t key, int64_t rank, int64_t /*count*/) override {
    (static_cast<size_t>(rank) < most_active_ ? active_ : inactive_).push_front(key);
  }

 private:
  const size_t most_active_;
  std::list<int32_t> active_, inactive_;
};

class SlowS3Fifo final : public SlowPolicy {
 public:
  explicit SlowS3Fifo(int64_t num_slots)
      : small_slots_(std::max<size_t>(1, static_cast<size_t>(num_slots) / 10)),
        main_slots_(static_cast<size_t>(num_slots) - small_slots_) {}

  void Touch(int32_t key) override { count_[key] = std::min(3, count_[key] + 1); }
  void Insert(int32_t key) override {
    const auto ghost = std::find(ghosts_.begin(), ghosts_.end(), key);
    (ghost == ghosts_.end() ? small_ : main_).push_front(key);
    if (ghost != ghosts_.end()) ghosts_.erase(ghost);
    count_[key] = 0;
  }
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) override {
    if (small_.size() >= small_slots_) {
      if (const auto key = FromSmall(held)) return key;
    }
    const auto key = FromMain(held);
    return key ? key : FromSmall(held);
  }
  void Remove(int32_t key) override {
    small_.remove(key);
    main_.remove(key);
  }

 private:
  std::optional<int32_t> FromSmall(const std::multiset<int32_t>& held) {
    while (const auto key = TakeFromBack(small_, held)) {
      if (count_[*key] == 0) {
        ghosts_.push_front(*key);
        if (ghosts_.size() > main_slots_) ghosts_.pop_back();
        return key;
      }
      count_[*key] = 0;
      main_.push_front(*key);
      if (main_.size() > main_slots_) return FromMain(held);
    }
    return std::nullopt;
  }
  std::optional<int32_t> FromMain(const std::multiset<int32_t>& held) {
    while (const auto key = TakeFromBack(main_, held)) {
      if (count_[*key] == 0) return key;
      --count_[*key];
      main_.push_front(*key);
    }
    return std::nullopt;
  }

  const size_t small_slots_, main_slots_;
  std::list<int32_t> small_, main_, ghosts_;
  std::map<int32_t, int> count_;
};

// Counts that fade, key by key, and a search over all of them.
class SlowLfu final : public SlowPolicy {
 public:
  SlowLfu(int64_t num_keys, int64_t num_layers)
      : num_layers_(num_layers), keys_per_layer_(num_keys / num_layers) {}

  void BeginBatch(int32_t first_key) override {
    layer_ = first_key / keys_per_layer_;
    again_ = layer_ == last_layer_;
    last_layer_ = layer_;
    if (again_) return;
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
  void EndToken() override { last_layer_ = -1; }

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

  const int64_t num_layers_, keys_per_layer_;
  int64_t layer_ = 0, last_layer_ = -1;
  bool again_ = false;
  std::map<int32_t, int> levels_;  // of all keys that were ever used
  Lists lists_;
};

// Levels of all keys, and lists by where they stand; the densities are those of the policy.
class SlowHitDensity final : public SlowPolicy {
 public:
  SlowHitDensity(int64_t num_keys, int64_t num_layers)
      : num_layers_(num_layers), keys_per_layer_(num_keys / num_layers) {}

  void BeginBatch(int32_t first_key) override {
    layer_ = first_key / keys_per_layer_;
    again_ = layer_ == last_layer_;
    last_layer_ = layer_;
    if (again_) return;
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
      if (std::get<0>(where) != layer_) continue;
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
    last_layer_ = -1;
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

  const int64_t num_layers_, keys_per_layer_;
  int64_t layer_ = 0, last_layer_ = -1;
  bool again_ = false;
  std::map<int64_t, int> turns_;
  std::map<int32_t, std::pair<int, int>> values_;  // of all keys that were ever used
  std::map<Where, std::list<int32_t>> lists_;
  cache::HitDensities densities_{Policy::Priors()};
};

class SlowStatic final : public SlowPolicy {
 public:
  void Touch(int32_t) override {}
  void Insert(int32_t) override {}
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>&) override { return std::nullopt; }
  void Remove(int32_t) override {}
  bool Admits(int32_t) const override { return false; }
};

class SlowWindow final : public SlowPolicy {
 public:
  void Touch(int32_t key) override {
    Remove(key);
    Insert(key);
  }
  void Insert(int32_t key) override { tokens_.front().push_front(key); }
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) override {
    for (auto token = tokens_.rbegin(); token != tokens_.rend(); ++token) {
      if (const auto key = TakeFromBack(*token, held)) return key;
    }
    return std::nullopt;
  }
  void Remove(int32_t key) override {
    for (auto& token : tokens_) token.remove(key);
  }
  void EndToken() override { tokens_.splice(tokens_.begin(), tokens_, std::prev(tokens_.end())); }
  std::optional<int32_t> TakeExpired(const std::multiset<int32_t>& held) override {
    return TakeFromBack(tokens_.front(), held);
  }

 private:
  std::list<std::list<int32_t>> tokens_{6};  // the current one first
};

inline std::unique_ptr<SlowPolicy> MakeSlowPolicy(const NeuronCacheOptions& options) {
  switch (options.policy) {
    case CachePolicyKind::kLru:
      return std::make_unique<SlowLru>();
    case CachePolicyKind::kTwoQueue:
      return std::make_unique<SlowTwoQueue>(options.num_slots);
    case CachePolicyKind::kS3Fifo:
      return std::make_unique<SlowS3Fifo>(options.num_slots);
    case CachePolicyKind::kLfuDecay:
      return std::make_unique<SlowLfu>(options.num_keys, 1);
    case CachePolicyKind::kLayerLfu:
      return std::make_unique<SlowLfu>(options.num_keys, options.num_layers);
    case CachePolicyKind::kHitDensity:
      return std::make_unique<SlowHitDensity>(options.num_keys, options.num_layers);
    case CachePolicyKind::kStatic:
      return std::make_unique<SlowStatic>();
    case CachePolicyKind::kWindow:
      return std::make_unique<SlowWindow>();
  }
  return nullptr;
}

}  // namespace hearth
