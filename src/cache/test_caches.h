// Caches that tests drive, and a slow model of them to hold them against. For tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/random_words.h"
#include "cache/neuron_cache.h"
#include "cache/slow_layered_policies.h"
#include "cache/slow_policy.h"

namespace hearth {

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

class SlowStatic final : public SlowPolicy {
 public:
  void Touch(int32_t) override {}
  void Insert(int32_t) override {}
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>&) override { return std::nullopt; }
  void Remove(int32_t) override {}
  bool Admits(int32_t) const override { return false; }
};

// A window of `tokens`, or of as many as there are slots for (0).
class SlowWindow final : public SlowPolicy {
 public:
  explicit SlowWindow(int64_t tokens) : tokens_(tokens) {}

  void Touch(int32_t key) override {
    Remove(key);
    Insert(key);
  }
  void Insert(int32_t key) override {
    used_.push_front(key);
    token_of_[key] = token_;
  }
  void Seed(int32_t key, int64_t rank, int64_t /*count*/) override {
    Insert(key);
    if (tokens_ == 0) token_of_[key] = -1 - rank;
  }
  std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) override {
    const auto key = TakeFromBack(used_, held);
    if (key && tokens_ == 0 && token_of_[*key] < token_) {
      last_out_ = std::max(last_out_, token_of_[*key]);
    }
    return key;
  }
  void Remove(int32_t key) override { used_.remove(key); }
  void EndToken() override {
    ++token_;
    if (tokens_ > 0) last_out_ = token_ - tokens_ - 1;
  }
  std::optional<int32_t> TakeExpired(const std::multiset<int32_t>& held) override {
    while (!used_.empty() && token_of_[used_.back()] <= last_out_) {
      const int32_t key = used_.back();
      used_.pop_back();
      if (held.count(key) == 0) return key;
      Insert(key);
    }
    return std::nullopt;
  }

 private:
  const int64_t tokens_;
  int64_t token_ = 0, last_out_ = INT64_MIN;
  std::list<int32_t> used_;
  std::map<int32_t, int64_t> token_of_;  // that used a key last
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
      return std::make_unique<SlowWindow>(options.window_tokens);
  }
  return nullptr;
}

}  // namespace hearth
