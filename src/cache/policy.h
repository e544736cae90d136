// What a policy does for its cache. Internal to src/cache.
//
// A batch's accesses come as one call, so that only misses, each of which is a read from storage,
// pay for a virtual call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/cache_entry.h"
#include "cache/cache_policy.h"
#include "cache/key_lists.h"

namespace hearth::cache {

// What a policy may assume of NeuronCache: keys are in range; Insert is for keys that were just
// given a slot, Touch and Remove for keys that hold one. A policy sets list and value of nodes, and
// reads pins only through KeyLists.
class Policy {
 public:
  Policy(std::span<KeyNode> nodes, int num_lists) : lists_(nodes, num_lists) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // A batch begins: its keys that hold a slot (hit or pending) were accessed, in this order. All of
  // them are pinned. The others will be asked for one by one (Admits, TakeVictim, Insert).
  virtual void Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept = 0;
  // May this key, which is absent, take a slot?
  virtual bool Admits(int32_t /*key*/) const noexcept { return true; }
  virtual void Insert(int32_t key) noexcept = 0;
  // Takes a key without pins off its list, to lose its slot; kNoKey where every key is in use.
  virtual int32_t TakeVictim() noexcept = 0;
  // The key loses its slot for another reason.
  virtual void Remove(int32_t key) noexcept { lists_.Unlink(key); }
  // A key that comes in with a warm start; `rank` of `count`, 0 the hottest. Cold ones come first.
  virtual void Seed(int32_t key, int64_t /*rank*/, int64_t /*count*/) noexcept { Insert(key); }
  virtual void EndToken() noexcept {}
  // The cache has this many slots from now on: some were withdrawn or restored.
  virtual void Resize(int64_t /*num_slots*/) noexcept {}
  // After EndToken, until it returns kNoKey: takes a key off its list that loses its slot although
  // nothing else wants it.
  virtual int32_t TakeExpired() noexcept { return kNoKey; }

  KeyLists& lists() noexcept { return lists_; }

 protected:
  // Of Touch at the batch's i-th key: fetches the list neighbours of a later one.
  void PrefetchAhead(const KeyBatch& batch, size_t i) const noexcept {
    constexpr size_t kAhead = 8;
    if (i + kAhead < batch.offsets.size()) {
      lists_.PrefetchNeighbours(batch.first_key + batch.offsets[i + kAhead]);
    }
  }

  KeyLists lists_;
};

// What a policy knows of its cache.
struct PolicyShape {
  CachePolicyKind kind = CachePolicyKind::kLru;
  int32_t num_slots = 0;      // at least 1
  int32_t num_layers = 1;     // divides the number of keys
  int32_t window_tokens = 0;  // of kWindow; 0: as many as there are slots for
};

std::unique_ptr<Policy> MakePolicy(std::span<KeyNode> nodes, const PolicyShape& shape);

}  // namespace hearth::cache
