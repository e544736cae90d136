// What slow models of cache policies have in common. For tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <optional>
#include <set>

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

// Takes the first key from the back that is not held; those after it go to the front, in turn.
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

}  // namespace hearth
