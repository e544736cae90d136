#include "kernels/row_pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/lane_pack.h"
#include "tensor/blocks.h"
#include "tensor/row_groups.h"

namespace hearth::kernels {
namespace {

template <class Block>
inline constexpr DType kDTypeOf = DType::kQ8_0;
template <>
inline constexpr DType kDTypeOf<BlockQ4_0> = DType::kQ4_0;
template <>
inline constexpr DType kDTypeOf<BlockQ4_1> = DType::kQ4_1;

// Where the parts of block b are in a row.
class Place {
 public:
  Place(const RowGroups& row, int64_t b) {
    const int64_t group = b / kRowGroupBlocks;
    const int64_t lanes = std::min(kRowGroupBlocks, row.lanes - group * kRowGroupBlocks);
    line_bytes_ = static_cast<size_t>(lanes * kRowLaneBytes);
    codes_ = group * row.group_bytes + b % kRowGroupBlocks * kRowLaneBytes;
    scale_ = row.scales + b * static_cast<int64_t>(sizeof(HalfBits));
    minimum_ = row.minimums + b * static_cast<int64_t>(sizeof(HalfBits));
  }
  int64_t codes() const { return codes_; }  // of its lane in the first line
  size_t line_bytes() const { return line_bytes_; }
  int64_t scale() const { return scale_; }
  int64_t minimum() const { return minimum_; }

 private:
  size_t line_bytes_;
  int64_t codes_;
  int64_t scale_;
  int64_t minimum_;
};

template <class Block>
void Pack(const std::byte* blocks, int64_t k, std::byte* row) {
  const RowGroups layout = RowGroupsOf(kDTypeOf<Block>, k);
  std::memset(row, 0, static_cast<size_t>(layout.bytes));
  for (int64_t b = 0; b < layout.blocks; ++b) {
    Block block;
    std::memcpy(&block, blocks + b * static_cast<int64_t>(sizeof(Block)), sizeof(block));
    const Place place(layout, b);
    LaneCodes<Block>::Pack(block, reinterpret_cast<uint8_t*>(row) + place.codes(),
                           place.line_bytes());
    std::memcpy(row + place.scale(), &block.d, sizeof(block.d));
    if constexpr (requires { block.m; }) {
      std::memcpy(row + place.minimum(), &block.m, sizeof(block.m));
    }
  }
}

template <class Block>
void Unpack(const std::byte* row, int64_t k, std::byte* blocks) {
  const RowGroups layout = RowGroupsOf(kDTypeOf<Block>, k);
  for (int64_t b = 0; b < layout.blocks; ++b) {
    Block block{};
    const Place place(layout, b);
    LaneCodes<Block>::Unpack(reinterpret_cast<const uint8_t*>(row) + place.codes(),
                             place.line_bytes(), block);
    std::memcpy(&block.d, row + place.scale(), sizeof(block.d));
    if constexpr (requires { block.m; }) {
      std::memcpy(&block.m, row + place.minimum(), sizeof(block.m));
    }
    std::memcpy(blocks + b * static_cast<int64_t>(sizeof(Block)), &block, sizeof(block));
  }
}

}  // namespace

void PackRow(DType dtype, const std::byte* blocks, int64_t k, std::byte* row) noexcept {
  if (k <= 0) return;
  if (dtype == DType::kQ4_0) Pack<BlockQ4_0>(blocks, k, row);
  if (dtype == DType::kQ4_1) Pack<BlockQ4_1>(blocks, k, row);
  if (dtype == DType::kQ8_0) Pack<BlockQ8_0>(blocks, k, row);
}

void UnpackRow(DType dtype, const std::byte* row, int64_t k, std::byte* blocks) noexcept {
  if (k <= 0) return;
  if (dtype == DType::kQ4_0) Unpack<BlockQ4_0>(row, k, blocks);
  if (dtype == DType::kQ4_1) Unpack<BlockQ4_1>(row, k, blocks);
  if (dtype == DType::kQ8_0) Unpack<BlockQ8_0>(row, k, blocks);
}

}  // namespace hearth::kernels
