#include "tensor/row_groups.h"

namespace hearth {
namespace {

// Bytes per lane: of codes, and of a scale or a minimum.
constexpr int64_t kHalfBytes = 2;

struct LaneBytes {
  int64_t codes;
  int64_t minimum;
};

LaneBytes LaneBytesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return {16, 0};
    case DType::kQ4_1:
      return {16, kHalfBytes};
    case DType::kQ8_0:
      return {32, 0};
    default:
      return {0, 0};
  }
}

}  // namespace

bool HasRowGroups(DType dtype) { return LaneBytesOf(dtype).codes != 0; }

bool IsRowType(DType dtype) { return HasRowGroups(dtype) || dtype == DType::kF16; }

RowGroups RowGroupsOf(DType dtype, int64_t k) noexcept {
  const LaneBytes lane = LaneBytesOf(dtype);
  if (lane.codes == 0) return {};
  RowGroups row{};
  row.blocks = k / 32;
  row.lanes = (row.blocks + kRowLaneMultiple - 1) / kRowLaneMultiple * kRowLaneMultiple;
  row.groups = RowGroupCount(k);
  row.group_bytes = lane.codes * kRowGroupBlocks;
  row.scales = lane.codes * row.lanes;
  row.minimums = row.scales + kHalfBytes * row.lanes;
  row.bytes = row.minimums + lane.minimum * row.lanes;
  return row;
}

int64_t RowGroupCount(int64_t k) noexcept { return (k + kRowGroupWeights - 1) / kRowGroupWeights; }

}  // namespace hearth
