#include "kernels/row_pack.h"

#include "kernels/dequantize.h"
#include "kernels/test_util.h"
#include "tensor/blocks.h"
#include "tensor/row_groups.h"

namespace hearth::kernels {
namespace {

using testing::GuardedArray;

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

std::vector<std::byte> RandomBytes(std::mt19937& random, size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Every bit pattern comes back, NaN scales among them, and nothing outside the operands is touched.
TEST(RowPack, IsExactBothWays) {
  std::mt19937 random(1);
  for (const DType dtype : kTypes) {
    for (int64_t k = 0; k <= 32 * 50; k += 32) {
      SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " " << k);
      GuardedArray<std::byte> blocks(RandomBytes(random, RowBytes(dtype, static_cast<size_t>(k))));
      GuardedArray<std::byte> row(
          RandomBytes(random, static_cast<size_t>(RowGroupsOf(dtype, k).bytes)));
      GuardedArray<std::byte> back(static_cast<int64_t>(blocks.size()));
      PackRow(dtype, blocks.data(), k, row.data());
      UnpackRow(dtype, row.data(), k, back.data());
      ASSERT_EQ(back.ToVector(), blocks.ToVector());
    }
  }
}

// The byte of code `code` of block `block`, from the words of the format: in line j the lane of a
// block holds the 8 codes 8j..8j+7, low nibbles first (4 bits), or one quad (8 bits).
size_t ByteOf(DType dtype, int64_t k, int64_t block, int64_t code) {
  const int64_t blocks = k / 32;
  const int64_t group = block / 16;
  const int64_t in_group = std::min<int64_t>(16, (blocks - 16 * group + 3) / 4 * 4);
  const int64_t bits = dtype == DType::kQ8_0 ? 8 : 4;
  const int64_t line = code / (32 / bits);
  const int64_t start = group * 16 * 32 * bits / 8;
  return static_cast<size_t>(start + line * 4 * in_group + 4 * (block % 16) + code % 4);
}

TEST(RowPack, PutsEveryCodeWhereTheFormatSays) {
  std::mt19937 random(2);
  for (const DType dtype : kTypes) {
    for (const int64_t k : {32, 256, 512, 544, 896, 1024}) {
      const auto blocks = RandomBytes(random, RowBytes(dtype, static_cast<size_t>(k)));
      std::vector<std::byte> row(static_cast<size_t>(RowGroupsOf(dtype, k).bytes));
      PackRow(dtype, blocks.data(), k, row.data());
      const size_t header = dtype == DType::kQ4_1 ? 4 : 2;  // scale and minimum of a block
      for (int64_t i = 0; i < k; ++i) {
        const size_t block = static_cast<size_t>(i / 32) * InfoOf(dtype).block_bytes + header;
        const size_t at = static_cast<size_t>(i % 32);
        std::byte expected = blocks[block + (dtype == DType::kQ8_0 ? at : at % 16)];
        std::byte actual = row[ByteOf(dtype, k, i / 32, i % 32)];
        if (dtype != DType::kQ8_0) {
          expected = at < 16 ? expected & std::byte{15} : expected >> 4;
          actual = at % 8 < 4 ? actual & std::byte{15} : actual >> 4;
        }
        ASSERT_EQ(actual, expected) << NameOf(dtype) << " k=" << k << " weight " << i;
      }
    }
  }
}

TEST(RowPack, PutsScalesAndMinimumsAfterAllCodes) {
  constexpr int64_t kWeights = 544;  // 17 blocks, 20 lanes
  std::vector<BlockQ4_1> blocks(17);
  for (size_t b = 0; b < blocks.size(); ++b) {
    blocks[b] = {static_cast<HalfBits>(0x1000 + b), static_cast<HalfBits>(0x2000 + b), {}};
    std::fill(std::begin(blocks[b].qs), std::end(blocks[b].qs), uint8_t{0xff});
  }
  std::vector<std::byte> row(400, std::byte{0xee});
  ASSERT_EQ(RowGroupsOf(DType::kQ4_1, kWeights).bytes, 400);
  PackRow(DType::kQ4_1, reinterpret_cast<const std::byte*>(blocks.data()), kWeights, row.data());
  HalfBits halves[40];
  std::memcpy(halves, row.data() + 320, sizeof(halves));
  for (size_t lane = 0; lane < 20; ++lane) {
    EXPECT_EQ(halves[lane], lane < 17 ? 0x1000 + lane : 0) << lane;
    EXPECT_EQ(halves[20 + lane], lane < 17 ? 0x2000 + lane : 0) << lane;
  }
  // The last group: lines of four lanes, the last three of which are padding.
  for (size_t i = 256; i < 320; ++i) {
    EXPECT_EQ(row[i], i % 16 < 4 ? std::byte{0xff} : std::byte{0}) << i;
  }
}

}  // namespace
}  // namespace hearth::kernels
