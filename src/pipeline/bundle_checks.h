// Whether bundles that were read are as they were written: XXH32 of many at once, in the vectors of
// the machine, at the rate at which memory is read (a bundle at a time it took an eighth of all
// processor time in prompts of a model of which half is on storage). Loading and `hearth inspect
// --verify` check with BundleIsIntact and its like (format/bundle_layout.h).
#pragma once

#include <cstdint>

#include "format/bundle_layout.h"
#include "kernels/kernel_table.h"

namespace hearth {

// The two parts of a bundle that can be read alone.
enum class SlotPart : uint8_t { kAll, kGateHalf, kOtherHalf };

// The place in the list of a bundle whose checks do not fit its bytes, or those of one part, which
// are in the gate half; -1 where all do. Rows of the list are whole bundles.
int64_t FindDamagedBundle(const kernels::KernelTable& table, const BundleLayout& layout,
                          const kernels::RowList& bundles, SlotPart part) noexcept;

// The same of second halves: rows begin at the split, and checks[i] is what row i should have.
int64_t FindDamagedHalf(const kernels::KernelTable& table, const BundleLayout& layout,
                        const kernels::RowList& halves, const uint32_t* checks) noexcept;

}  // namespace hearth
