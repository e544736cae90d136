// A segment of the neuron cache (P2 §4.2): slots of one size, filled with
// what tokens used lately. It knows which key lies in which slot; it reads nothing and knows no
// model. What is always resident (the pinned segment) does not belong here: it needs no look-up.
//
// Keys are 0 to num_keys - 1, such as (layer * num_experts + expert) * neurons + neuron less what
// is pinned. A segment has one slot size: half bundles are a segment of their own, as whole experts
// are.
//
// States of a key, and who moves it:
//
//            Lookup (miss)           Loaded
//   Absent ----------------> Loading -------> Resident <------------------+
//     ^  ^                      |               |    Lookup               | Release
//     |  +------ Failed --------+               +----------> InUse -------+ (the last one)
//     |                                         |
//     +--- Evicting: inside a Lookup that needs the slot; never seen from outside
//
// InUse is Resident with pins: every Lookup pins what it returned a slot for, until its Release. A
// pinned or loading key keeps its slot whatever else is looked up; where all are pinned, or the
// policy does not want the key, a miss gets kNoSlot and must be read into a buffer of the caller's
// (as large as a batch, in the worst case).
//
// A token, layer by layer; releasing a layer as soon as it is computed leaves most room:
//   cache.Lookup({layer * neurons, active}, entries);
//   ... submit a read into SlotBytes for each kMiss, wait for kPending, compute;
//   ... cache.Loaded(key) or cache.Failed(key) once for each kMiss;
//   cache.Release({layer * neurons, active}, entries);
//   ... after the last layer cache.EndToken();
//
// Withdraw takes slots out of use, so that their memory serves something else; Restore brings them
// back.
//
// Not thread-safe: one thread, the coordinator, makes all calls and applies completions that others
// hand to it. Slots' bytes are its callers' to share out: the cache never touches them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/buffer.h"
#include "cache/cache_entry.h"
#include "cache/cache_policy.h"

namespace hearth {

namespace cache {
class Policy;
struct KeyNode;
}  // namespace cache

struct NeuronCacheOptions {
  int64_t num_keys = 0;   // 1 to kMaxKeys
  int64_t num_slots = 0;  // 1 to num_keys
  size_t slot_bytes = 0;  // 0 where only hits are counted
  // Layers, whose keys lie one after the other, equally many each; a batch is of one layer. 1 where
  // nothing is known. 1 to kMaxLayers, divides num_keys.
  int64_t num_layers = 1;
  CachePolicyKind policy = kDefaultCachePolicy;
  int32_t window_tokens = 0;  // of kWindow: tokens that it holds; 0: as many as there are slots for
};

// Accesses since the beginning. hits + pending + misses + no_slot are all of them.
struct CacheCounts {
  int64_t hits = 0;
  int64_t pending = 0;
  int64_t misses = 0;
  int64_t no_slot = 0;
  int64_t evictions = 0;

  int64_t accesses() const { return hits + pending + misses + no_slot; }
};

enum class CacheState : uint8_t { kAbsent, kLoading, kResident, kInUse };

class NeuronCache {
 public:
  static constexpr int64_t kMaxKeys = int64_t{1} << 30;
  static constexpr int64_t kMaxLayers = 400;

  // Nothing is resident at first. memory: num_slots * slot_bytes, the caller's, outlives the cache.
  // The tables are charged to `budget` as "cache tables". Throws Error(kInvalidArgument) for sizes
  // that make no sense, Error(kOutOfBudget).
  NeuronCache(Budget& budget, const NeuronCacheOptions& options, std::span<std::byte> memory);
  NeuronCache(const NeuronCache&) = delete;
  NeuronCache& operator=(const NeuronCache&) = delete;
  ~NeuronCache();

  // What the constructor charges for such a cache.
  static uint64_t TableBytes(const NeuronCacheOptions& options);

  // Accesses a layer's keys: entries[i] says where key i is. First all that are here are found and
  // pinned, then the absent ones take slots, so that no key of a batch evicts another. Keys are in
  // range; entries as many as keys. A key that is in the batch twice is pinned twice. Returns how
  // many entries are kMiss or kNoSlot.
  int64_t Lookup(const KeyBatch& batch, std::span<CacheEntry> entries) noexcept;

  // The read of a kMiss is done: the bytes are in the slot. May come after its Release.
  void Loaded(int32_t key) noexcept;
  // The read of a kMiss failed, and nothing writes to the slot any more: the key is absent, its
  // slot free. What other look-ups were told about it (kPending) is void.
  void Failed(int32_t key) noexcept;

  // Takes back the pins of one Lookup, with the entries that it wrote.
  void Release(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept;

  // Forgets whatever has no pin and the policy would give up: its bytes are not to be trusted.
  void Forget() noexcept;

  // A token of the model (or a step of a batch of sequences) ended: the clock of policies that
  // forget. Keys may lose their slots.
  void EndToken() noexcept;

  // A warm start, before the first Lookup: `keys`, the hottest first, take slots as long as there
  // are any and are resident at once: slots[i] is where the caller must have read keys[i] before
  // the next Lookup. Keys that follow each other get slots that do, so that whoever computes
  // neurons of an FFN together finds them on few pages. Absent, distinct keys. Returns how many
  // were taken, from the front.
  int64_t Seed(std::span<const int32_t> keys, std::span<int32_t> slots);

  // Copies the bytes of one slot to another.
  using MoveSlot = std::function<void(int32_t from, int32_t to)>;
  // Takes slots [first, first + count), none of them withdrawn, out of use. The policy chooses
  // which keys lose their slots, wherever they lie; keys that stay move out of these slots.
  // Requires that no look-up is open and that `move` does not throw. Takes time for all keys.
  // Returns false, with nothing changed, where a key in these slots is pinned or loading.
  bool Withdraw(int32_t first, int64_t count, const MoveSlot& move);
  // Takes withdrawn slots back into use; they are free.
  void Restore(int32_t first, int64_t count) noexcept;
  // Slots that are not withdrawn.
  int64_t num_slots() const noexcept { return options_.num_slots - num_withdrawn_; }

  CacheState state(int32_t key) const noexcept;
  // Where the bytes of a key that is resident lie; -1 of others. Stays so until the next Lookup,
  // EndToken, Failed or Withdraw.
  int32_t ResidentSlot(int32_t key) const noexcept;
  std::span<std::byte> SlotBytes(int32_t slot) const noexcept {
    return memory_.subspan(static_cast<size_t>(slot) * options_.slot_bytes, options_.slot_bytes);
  }
  int64_t num_resident() const noexcept { return num_held_ - num_loading_; }
  const NeuronCacheOptions& options() const noexcept { return options_; }
  const CacheCounts& counts() const noexcept { return counts_; }

 private:
  int32_t TakeSlot() noexcept;
  void FreeSlot(cache::KeyNode& node) noexcept;
  void DropFreeSlots(int32_t first, int32_t end) noexcept;
  CacheEntry AdmitMissing(int32_t key) noexcept;

  NeuronCacheOptions options_;
  std::span<std::byte> memory_;
  Buffer node_memory_;
  Buffer free_memory_;
  std::span<cache::KeyNode> nodes_;
  std::span<int32_t> free_slots_;  // the first num_free_
  int64_t num_free_ = 0;
  int64_t num_held_ = 0;  // keys with a slot
  int64_t num_loading_ = 0;
  int64_t num_withdrawn_ = 0;  // slots
  std::unique_ptr<cache::Policy> policy_;
  CacheCounts counts_;
};

}  // namespace hearth
