// The bundles of a BundleStore as rows that operators multiply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/sparse_ffn.h"
#include "pipeline/bundle_store.h"

namespace hearth {

// One FFN of a layer, and what is done with its products.
struct StreamedFfn {
  int64_t layer = 0;
  int64_t expert = 0;
  FfnActivation activation = FfnActivation::kRelu;
  float threshold = 0;
};

// A view; the store must outlive it.
class BundleRows {
 public:
  explicit BundleRows(const BundleStore& store) : store_(store) {}

  // Rows of up and down are slots of the whole arena. So are those of gate, but where gates are
  // held: those are the neurons of the FFN.
  FfnNeurons OfSlots(const StreamedFfn& ffn) const;
  // Rows are neurons of the FFN: the pinned ones; `count` from `first` on that lie as bundles; or
  // those of a range, each in a slot of its own (FfnNeurons::slots).
  FfnNeurons OfPinned(const StreamedFfn& ffn) const;
  FfnNeurons OfBundles(const StreamedFfn& ffn, int64_t first, int64_t count,
                       const std::byte* bundles) const;
  FfnNeurons InSlots(const StreamedFfn& ffn, std::span<const int32_t> slots) const;
  // Whether InSlots can be computed: slots are whole bundles, of row groups.
  bool computes_in_slots() const;

 private:
  FfnNeurons Rows(const StreamedFfn& ffn, int64_t first, int64_t count, const std::byte* data,
                  uint64_t stride, uint64_t begin) const;

  const BundleStore& store_;
};

}  // namespace hearth
