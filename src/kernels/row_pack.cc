#include "kernels/row_pack.h"

#include <algorithm>
#include <cstring>

#include "tensor/blocks.h"
#include "tensor/row_groups.h"

namespace hearth::kernels {
namespace {

constexpr int kLinesOf4Bits = 4;
constexpr int kLinesOf8Bits = 8;

// Byte i of a GGUF block holds codes i and i + 16, that of a lane codes 4 apart.
int CodeAt(const uint8_t (&qs)[16], int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

void PackLane(const uint8_t (&qs)[16], int line, uint8_t (&lane)[kRowLaneBytes]) {
  for (int i = 0; i < kRowLaneBytes; ++i) {
    const int code = 8 * line + i;
    lane[i] = static_cast<uint8_t>(CodeAt(qs, code) | CodeAt(qs, code + 4) << 4);
  }
}

void UnpackLane(const uint8_t (&lane)[kRowLaneBytes], int line, uint8_t (&qs)[16]) {
  for (int i = 0; i < kRowLaneBytes; ++i) {
    const int code = 8 * line + i;
    const int shift = code < 16 ? 0 : 4;
    qs[code % 16] = static_cast<uint8_t>(qs[code % 16] | (lane[i] & 15) << shift);
    qs[code % 16 + 4] = static_cast<uint8_t>(qs[code % 16 + 4] | (lane[i] >> 4) << shift);
  }
}

void PackLane(const int8_t (&qs)[32], int line, uint8_t (&lane)[kRowLaneBytes]) {
  std::memcpy(lane, qs + 4 * line, sizeof(lane));
}

void UnpackLane(const uint8_t (&lane)[kRowLaneBytes], int line, int8_t (&qs)[32]) {
  std::memcpy(qs + 4 * line, lane, sizeof(lane));
}

template <class Block>
struct Traits;
template <>
struct Traits<BlockQ4_0> {
  static constexpr DType kDType = DType::kQ4_0;
  static constexpr int kLines = kLinesOf4Bits;
};
template <>
struct Traits<BlockQ4_1> {
  static constexpr DType kDType = DType::kQ4_1;
  static constexpr int kLines = kLinesOf4Bits;
};
template <>
struct Traits<BlockQ8_0> {
  static constexpr DType kDType = DType::kQ8_0;
  static constexpr int kLines = kLinesOf8Bits;
};

// Where the parts of block b are in a row.
class Place {
 public:
  Place(const RowGroups& row, int64_t b) {
    const int64_t group = b / kRowGroupBlocks;
    const int64_t lanes = std::min(kRowGroupBlocks, row.lanes - group * kRowGroupBlocks);
    line_bytes_ = lanes * kRowLaneBytes;
    codes_ = group * row.group_bytes + b % kRowGroupBlocks * kRowLaneBytes;
    scale_ = row.scales + b * static_cast<int64_t>(sizeof(HalfBits));
    minimum_ = row.minimums + b * static_cast<int64_t>(sizeof(HalfBits));
  }
  int64_t lane(int line) const { return codes_ + line * line_bytes_; }
  int64_t scale() const { return scale_; }
  int64_t minimum() const { return minimum_; }

 private:
  int64_t line_bytes_;
  int64_t codes_;
  int64_t scale_;
  int64_t minimum_;
};

template <class Block>
void Pack(const std::byte* blocks, int64_t k, std::byte* row) {
  const RowGroups layout = RowGroupsOf(Traits<Block>::kDType, k);
  std::memset(row, 0, static_cast<size_t>(layout.bytes));
  for (int64_t b = 0; b < layout.blocks; ++b) {
    Block block;
    std::memcpy(&block, blocks + b * static_cast<int64_t>(sizeof(Block)), sizeof(block));
    const Place place(layout, b);
    for (int line = 0; line < Traits<Block>::kLines; ++line) {
      uint8_t lane[kRowLaneBytes];
      PackLane(block.qs, line, lane);
      std::memcpy(row + place.lane(line), lane, sizeof(lane));
    }
    std::memcpy(row + place.scale(), &block.d, sizeof(block.d));
    if constexpr (requires { block.m; }) {
      std::memcpy(row + place.minimum(), &block.m, sizeof(block.m));
    }
  }
}

template <class Block>
void Unpack(const std::byte* row, int64_t k, std::byte* blocks) {
  const RowGroups layout = RowGroupsOf(Traits<Block>::kDType, k);
  for (int64_t b = 0; b < layout.blocks; ++b) {
    Block block{};
    const Place place(layout, b);
    for (int line = 0; line < Traits<Block>::kLines; ++line) {
      uint8_t lane[kRowLaneBytes];
      std::memcpy(lane, row + place.lane(line), sizeof(lane));
      UnpackLane(lane, line, block.qs);
    }
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
