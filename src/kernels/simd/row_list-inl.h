// Rows of a list: where they are, and how they are asked for before they are needed.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Rows of a dot product at once. They share the loads of activations, and they are so many streams
// for the processor's own prefetchers: six are 5 to 10% faster than four, eight up to 5% faster.
inline constexpr int kRowsOfDot = kLanes == 16 ? 8 : 4;
// The same where rows are loaded before they are multiplied (LoadsRowsFirst): what they and the
// next ones need of a first-level cache of 48 KiB is there for ten, whose sums only 32 registers
// hold. (Four at once lose up to a fifth where most rows are listed.)
inline constexpr int kRowsOfLoadedDot = 10;
inline constexpr bool kHasLoadedDot = kLanes == 16;
// Rows of which each sum takes all while it is in a register.
inline constexpr int kRowsOfSum = 8;

// Row i of a list, and the one to fetch meanwhile: `ahead` further on, or the last. All its lines
// are asked for, in ascending order: then the processor's own prefetcher helps; left out or in
// another order they come 10 to 30% later.
HWY_INLINE const uint8_t* RowAt(const RowList& list, int64_t i) {
  const auto* base = reinterpret_cast<const uint8_t*>(list.base);
  return base + list.stride * static_cast<size_t>(list.rows[i]);
}
HWY_INLINE const uint8_t* RowAhead(const RowList& list, int64_t i, int64_t ahead) {
  return RowAt(list, i + ahead < list.count ? i + ahead : list.count - 1);
}

// Up to kRowsOfSum rows of a list.
struct RowBatch {
  const uint8_t* rows[kRowsOfSum];
  const uint8_t* ahead[kRowsOfSum];
  const float* a;
  int count;
  bool near;  // as in the list
};

// Those from row `first` of a list on, with their factors.
HWY_INLINE RowBatch BatchOf(const RowList& list, const float* a, int64_t first) {
  RowBatch batch;
  batch.a = a + first;
  batch.near = list.near;
  batch.count = static_cast<int>(list.count - first < kRowsOfSum ? list.count - first : kRowsOfSum);
  for (int r = 0; r < batch.count; ++r) {
    batch.rows[r] = RowAt(list, first + r);
    batch.ahead[r] = RowAhead(list, first + r, kRowsOfSum);
  }
  return batch;
}

}  // namespace hearth::kernels::HEARTH_ISA
