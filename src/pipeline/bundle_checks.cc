#include "pipeline/bundle_checks.h"

#include <algorithm>
#include <array>

namespace hearth {
namespace {

constexpr int64_t kMostHashed = 64;

using Hashes = std::array<uint32_t, kMostHashed>;

// Of the same bytes of up to kMostHashed rows.
Hashes HashRows(const kernels::KernelTable& table, const kernels::RowList& rows, uint64_t offset,
                uint64_t bytes) noexcept {
  Hashes hashes;
  table.xxh32_rows(
      {{rows.base + offset, rows.stride, rows.rows, rows.count}, bytes, hashes.data()});
  return hashes;
}

// The rows of a list from `first` on.
kernels::RowList PartOf(const kernels::RowList& rows, int64_t first) noexcept {
  return {rows.base, rows.stride, rows.rows + first, std::min(rows.count - first, kMostHashed)};
}

}  // namespace

int64_t FindDamagedBundle(const kernels::KernelTable& table, const BundleLayout& layout,
                          const kernels::RowList& bundles, SlotPart which) noexcept {
  const CheckedPart gate = GateChecked(layout), rest = RestChecked(layout);
  for (int64_t first = 0; first < bundles.count; first += kMostHashed) {
    const kernels::RowList part = PartOf(bundles, first);
    Hashes gates, rests;
    if (which != SlotPart::kOtherHalf) gates = HashRows(table, part, gate.offset, gate.bytes);
    if (which != SlotPart::kGateHalf) rests = HashRows(table, part, rest.offset, rest.bytes);
    for (int64_t i = 0; i < part.count; ++i) {
      const std::byte* bundle = part.base + part.stride * static_cast<size_t>(part.rows[i]);
      const BundleChecks checks = StoredChecks(layout, {bundle, layout.stride});
      const auto at = static_cast<size_t>(i);
      if (which != SlotPart::kOtherHalf && gates[at] != checks.gate) return first + i;
      if (which != SlotPart::kGateHalf && rests[at] != checks.rest) return first + i;
    }
  }
  return -1;
}

int64_t FindDamagedHalf(const kernels::KernelTable& table, const BundleLayout& layout,
                        const kernels::RowList& halves, const uint32_t* checks) noexcept {
  const CheckedPart rest = RestChecked(layout);
  for (int64_t first = 0; first < halves.count; first += kMostHashed) {
    const kernels::RowList part = PartOf(halves, first);
    const Hashes hashes = HashRows(table, part, rest.offset - layout.split, rest.bytes);
    for (int64_t i = 0; i < part.count; ++i) {
      if (hashes[static_cast<size_t>(i)] != checks[first + i]) return first + i;
    }
  }
  return -1;
}

}  // namespace hearth
