// Start here: the FFNs of a model that is not packed and larger than the memory it was given. The
// matrices of dense layers and of experts lie on storage as the file has them; some extents of them
// are in memory in the layout that is multiplied.
//
// A dense FFN needs all of its extents for every token, in the same order every time: what is in
// memory stays there, spread evenly, and the rest is read in order, into the next layer, so that
// reading overlaps with all computing. Of a mixture the router says which experts a layer needs:
// they are looked up in the cache, the missing ones read, and those that are there are multiplied
// meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/budget.h"
#include "cache/lent_slots.h"
#include "cache/neuron_cache.h"
#include "cache/shared_arena.h"
#include "ops/compute.h"
#include "ops/linear.h"
#include "pipeline/extents/extent_batch.h"
#include "pipeline/extents/extent_map.h"
#include "pipeline/extents/extent_reader.h"
#include "pipeline/stream_counts.h"
#include "plan/extent_plan.h"

namespace hearth {

// The cache of extents: a mixture's follows the policy, what a dense model has in memory stays.
NeuronCacheOptions ExtentCacheOptions(const ExtentMap& map, const ExtentPlan& plan,
                                      CachePolicyKind policy);
// What starts in memory, the best first: of a dense model extents at even distances, of a mixture
// experts, of every layer the same ones. At least `slots` where there are as many.
std::vector<int32_t> StartExtents(const ExtentMap& map, int64_t slots);

// One matrix of an FFN, and where its product goes.
struct FfnProduct {
  FfnMatrix which = FfnMatrix::kGate;
  FloatView out;  // [tokens][rows of the matrix]
};

// One thread at a time.
class StreamedMatrices {
 public:
  // files: one for each part of a split set. policy: of a mixture; what a dense model has in memory
  // stays. Charges ChargedBytes. Throws as ExtentReader does.
  StreamedMatrices(Budget& budget, ExtentMap map, std::vector<std::unique_ptr<AsyncFile>> files,
                   const ExtentPlan& plan, CachePolicyKind policy);
  StreamedMatrices(const StreamedMatrices&) = delete;
  StreamedMatrices& operator=(const StreamedMatrices&) = delete;
  ~StreamedMatrices();
  static uint64_t ChargedBytes(const ExtentMap& map, const ExtentPlan& plan,
                               CachePolicyKind policy);

  // Fills what is in memory of a dense model, or the cache of a mixture. Calls
  // progress(done_bytes, total_bytes), which may throw. Throws Error(kIo).
  void Fill(Compute& compute, const std::function<void(uint64_t, uint64_t)>& progress);

  // Before a pass, also after one that failed. Throws Error(kIo) where a file was truncated or
  // replaced.
  void BeginPass();
  // After a pass: the clock of policies that forget.
  void EndPass() noexcept { cache_->EndToken(); }

  // Lends the memory of the plan's KV pages.
  LentSlots& kv_slots() { return kv_slots_; }

  // Between passes: reads anew what a mixture has cached. Files that are not packed have no
  // checksums: that an extent is damaged shows in what is computed with it.
  void ForgetCached() noexcept {
    if (is_mixture()) cache_->Forget();
  }

  // The FFNs of a layer that will be multiplied, distinct and ascending. Where `reorder`, puts
  // those that are in memory first; they must be multiplied in this order.
  void BeginLayer(int64_t layer, std::span<int32_t> experts, bool reorder);
  // out = input * matrix^T for some matrices of an FFN, ascending, each once in a layer. Throws
  // Error(kIo); nothing is in flight then.
  void Multiply(Compute& compute, int64_t expert, std::span<const FfnProduct> products,
                MatMulInput& input);
  void EndLayer();

  // A matrix of one FFN as it is multiplied, read to `to`, which has room for its expert_bytes().
  // Between passes. Throws Error(kIo).
  WeightView Read(Compute& compute, int64_t layer, int64_t expert, FfnMatrix which, std::byte* to);

  // Bytes per second that the storage gives these reads while nothing is computed: extents in
  // order, for about `seconds`. Between passes. Throws Error(kIo).
  double ProbeReads(double seconds);

  const ExtentMap& map() const { return map_; }
  const ExtentPlan& plan() const { return plan_; }
  CachePolicyKind policy() const { return cache_->options().policy; }
  const AsyncFile& file() const { return *files_.front(); }
  bool is_mixture() const { return map_.num_experts() > 1; }
  const StreamCounts& counts() const { return counts_; }  // "neurons" are extents here

 private:
  void LookUp(int64_t layer, std::span<int32_t> experts, bool reorder, ExtentBatch& batch);
  void MultiplyPresent(Compute& compute, int64_t expert, std::span<const FfnProduct> products,
                       MatMulInput& input);
  void MultiplyMissing(Compute& compute, int64_t expert, std::span<const FfnProduct> products,
                       MatMulInput& input);
  WeightView Bring(Compute& compute, const ExtentReader::Taken& taken, size_t index);
  void Unpack(Compute& compute, const Extent& extent, std::span<const std::byte> stored,
              std::byte* to);
  void Abandon() noexcept;
  // Bytes of a slot of the cache, or of kNotKept, which lies before them all.
  std::byte* Slot(int32_t slot) {
    return memory_.data() + static_cast<size_t>(slot - kNotKept) * slot_bytes_;
  }

  static constexpr int32_t kNotKept = -1;  // takes an extent that is not kept

  ExtentMap map_;
  ExtentPlan plan_;
  std::vector<std::unique_ptr<AsyncFile>> files_;
  uint64_t slot_bytes_ = 0;
  SharedArena memory_;  // one slot for an extent that is not kept, and the cache's
  std::unique_ptr<NeuronCache> cache_;
  LentSlots kv_slots_;
  ExtentReader reader_;
  ExtentBatch current_, next_;  // layers
  std::vector<Product> present_;
  // Of conversions, a tile's rows for each thread: less than what loading takes without a name.
  std::vector<std::vector<std::byte>> scratch_;
  uint64_t other_bytes_ = 0;  // that were read outside of passes
  StreamCounts counts_;
};

}  // namespace hearth
