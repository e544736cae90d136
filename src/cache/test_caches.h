// Caches that tests drive, and a slow model of them to hold them against. For tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/random_words.h"
#include "cache/neuron_cache.h"

namespace hearth {

// What a policy does, in lists that are searched from end to end. Its keys are those with a slot.
class SlowPolicy {
 public:
  virtual ~SlowPolicy() = default;
  virtual void Touch(int32_t key) = 0;
  virtual void Insert(int32_t key) = 0;
  // `held`: keys that must stay. Takes the victim out.
  virtual std::optional<int32_t> TakeVictim(const std::multiset<int32_t>& held) = 0;
  virtual void Remove(int32_t key) = 0;
  virtual bool Admits(int32_t) const { return true; }
  virtual void Seed(int32_t key, int64_t /*rank*/) { Insert(key); }
  virtual void EndToken() {}
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
  void Seed(int32_t key, int64_t rank) override {
    (static_cast<size_t>(rank) < most_active_ ? active_ : inactive_).push_front(key);
  }

 private:
  const size_t most_active_;
  std::list<int32_t> active_, inactive_;
};

inline std::unique_ptr<SlowPolicy> MakeSlowPolicy(const NeuronCacheOptions& options) {
  switch (options.policy) {
    case CachePolicyKind::kLru:
      return std::make_unique<SlowLru>();
    case CachePolicyKind::kTwoQueue:
      return std::make_unique<SlowTwoQueue>(options.num_slots);
  }
  return nullptr;
}

}  // namespace hearth
