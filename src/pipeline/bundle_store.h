// The FFNs of a packed model of which only a part is in memory (P2 §4.2).
//
// All bundles that are in memory lie in slots of one arena, as they lie in the file:
//
//   [pinned: the hottest prefix of every FFN] [neuron cache] [spare: reads that own no slot]
//
// Rows of an operator are slots (pipeline/bundle_rows.h), so that a neuron's products have the same
// bits wherever its bundle lies. Where the plan lends KV pages, the last slots of the cache lie
// over them (cache/lent_slots.h). Where the plan holds gates, those of all neurons lie in memory of
// their own, FFN after FFN, with the checks of the other halves, and slots are second halves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "cache/neuron_cache.h"
#include "cache/shared_arena.h"
#include "format/bundle_layout.h"
#include "pipeline/bundle_checks.h"
#include "pipeline/gate_only_keys.h"
#include "plan/stream_plan.h"
#include "storage/async/async_reader.h"

namespace hearth {

// Where the bundles of a model lie on storage. FFNs are numbered layer * num_experts + expert.
struct BundleSource {
  std::unique_ptr<AsyncFile> file;
  BundleLayout layout;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_experts = 1;              // 1: one FFN per layer
  int64_t neurons = 0;                  // of an FFN
  int64_t first_neuron = 0;             // which of an FFN's in the file is number 0 here
  std::vector<uint64_t> layer_offsets;  // of a layer's first bundle in the file

  int64_t num_ffns() const { return num_layers * num_experts; }
  int64_t neurons_in_file() const { return first_neuron + neurons; }  // of an FFN
  StreamShape shape() const { return ShapeOf(layout, num_ffns(), neurons); }
  static StreamShape ShapeOf(const BundleLayout& layout, int64_t num_ffns, int64_t neurons);
  // Throws Error(kUnsupported) where the file cannot read halves of bundles.
  void RequireHalves() const;
};

// Some neurons of an FFN, and the slots that hold them.
struct NeuronsInSlots {
  const int32_t* neurons = nullptr;
  const int32_t* slots = nullptr;
  int64_t count = 0;
};

// One thread at a time. Its parts are handed to the two pipelines, which never run at once.
class BundleStore {
 public:
  // Charges the arena to `budget` as "neurons", KV pages that are lent to the cache as "kv cache",
  // and gates that are held as "gates". Throws Error(kOutOfBudget), and Error(kUnsupported) where
  // the file's direct reads need a larger alignment than bundles have.
  BundleStore(Budget& budget, BundleSource source, const StreamPlan& plan, CachePolicyKind policy);
  // What the constructor charges.
  static uint64_t ChargedBytes(const StreamShape& shape, const StreamPlan& plan,
                               CachePolicyKind policy);

  const BundleSource& source() const { return source_; }
  const StreamPlan& plan() const { return plan_; }
  AsyncFile& file() { return *source_.file; }
  NeuronCache& cache() { return *cache_; }

  int64_t FfnIndex(int64_t layer, int64_t expert) const {
    return layer * source_.num_experts + expert;
  }
  uint64_t FileOffset(int64_t ffn, int64_t neuron) const;
  // What a slot holds of a bundle begins here.
  uint64_t slot_offset() const { return plan_.holds_gates ? source_.layout.split : 0; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  // Slots of the pinned neurons of an FFN begin here; those of the cache, the spare ones.
  int32_t PinnedSlot(int64_t ffn) const { return static_cast<int32_t>(ffn * plan_.pinned_neurons); }
  int32_t cache_slot() const { return first_cache_slot_; }
  int32_t spare_slot() const { return first_spare_slot_; }
  // The cache's key of a neuron that is not pinned is this number plus the neuron's.
  int32_t FirstKey(int64_t ffn) const {
    return static_cast<int32_t>(ffn * (source_.neurons - plan_.pinned_neurons) -
                                plan_.pinned_neurons);
  }

  // The slot of a neuron that is not pinned and that the cache has whole; -1 of others.
  int32_t CachedSlot(int64_t ffn, int64_t neuron) const {
    const int32_t key = FirstKey(ffn) + static_cast<int32_t>(neuron);
    const int32_t slot = cache_->ResidentSlot(key);
    return slot < 0 || gate_only_->Has(key) ? -1 : first_cache_slot_ + slot;
  }
  // Of keys that are resident.
  GateOnlyKeys& gate_only() { return *gate_only_; }

  std::span<std::byte> Slots(int32_t first, int64_t count) const;
  // Where reads go: the slots of the cache and the spare ones, and the latter alone.
  std::span<std::byte> ReadSlots() const { return SlotsFrom(first_cache_slot_); }
  std::span<std::byte> SpareSlots() const { return SlotsFrom(first_spare_slot_); }
  // The spare slots again, as plan().range_buffers buffers of whole bundles.
  std::span<std::byte> RangeBuffer(int64_t buffer) const;

  // Where gates are held: those of an FFN from a neuron on, gate_stride() bytes apart.
  const std::byte* HeldGates(int64_t ffn, int64_t neuron) const {
    return gates_.data() + NeuronIndex(ffn, neuron) * gate_stride_;
  }
  size_t gate_stride() const { return gate_stride_; }

  // Takes what is held of a bundle that was read, whose checks fit: its gate, where gates are held,
  // and, with a slot, the rest. Different neurons may be taken at a time.
  void Take(int64_t ffn, int64_t neuron, const std::byte* bundle, std::optional<int32_t> slot);

  // The most neurons that FindDamaged looks at.
  static constexpr int64_t kMostChecked = 256;
  // A place in the lists of some neurons where what is held does not fit its checks; -1 where all
  // do. Where slots hold gates, only this part of each is checked.
  int64_t FindDamaged(const kernels::KernelTable& table, int64_t ffn, const NeuronsInSlots& which,
                      SlotPart part) const noexcept;
  [[noreturn]] void ThrowDamaged(int64_t ffn, int64_t neuron) const;
  // For a read that failed with an errno.
  [[noreturn]] void ThrowReadError(int error) const;

 private:
  std::span<std::byte> SlotsFrom(int32_t first) const;
  size_t NeuronIndex(int64_t ffn, int64_t neuron) const {
    return static_cast<size_t>(ffn * source_.neurons + neuron);
  }

  BundleSource source_;
  StreamPlan plan_;
  const uint64_t slot_bytes_;
  const size_t gate_stride_;
  std::optional<SharedArena> arena_;
  // Where gates are held: a row per neuron, then a check of the other half per neuron.
  Buffer gates_;
  std::span<uint32_t> rest_checks_;
  int32_t first_cache_slot_ = 0;
  int32_t first_spare_slot_ = 0;
  std::unique_ptr<NeuronCache> cache_;
  std::optional<GateOnlyKeys> gate_only_;
};

// Measures storage while nothing else goes on: reads neurons that are not pinned, at random, as
// decoding does and as many at once as the plan says, for about `seconds`. Returns bytes per
// second; 0 where all neurons are pinned. Uses the spare slots, so nothing else may be reading.
// Throws Error(kIo).
double ProbeNeuronReads(BundleStore& store, double seconds);

}  // namespace hearth
