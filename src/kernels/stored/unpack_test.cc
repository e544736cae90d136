#include "kernels/stored/unpack.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "kernels/stored/tables.h"
#include "kernels/test_util.h"

namespace hearth::kernels {
namespace {

std::vector<TileFormat> StoredFormats() {
  std::vector<TileFormat> formats;
  for (const TileFormat& format : kTileFormats) {
    if (format.is_stored()) formats.push_back(format);
  }
  return formats;
}

// Any bits: each row of a group is what its block is alone, where 8-bit codes of it lie.
TEST(Unpack, AGroupHasTheBlocksOfItsRows) {
  std::mt19937 random(5);
  for (const TileFormat& format : StoredFormats()) {
    const auto bytes = static_cast<size_t>(format.stored_bytes);
    testing::GuardedArray<std::byte> group(static_cast<int64_t>(16 * bytes));
    for (std::byte& b : group) b = static_cast<std::byte>(random());
    UnpackedGroup all;
    UnpackGroup(format.dtype, group.data(), all);
    const int64_t scales = format.blocks_of_group() * format.scales_of_block;
    for (size_t row = 0; row < 16; ++row) {
      UnpackedBlock one;
      UnpackBlock(format.dtype, group.data() + row * bytes, one);
      for (int64_t i = 0; i < format.stored_columns; ++i) {
        ASSERT_EQ(all.quads[static_cast<size_t>(i / 4 * 64 + i % 4) + 4 * row], one.codes[i])
            << NameOf(format.dtype) << " row " << row << " weight " << i;
      }
      for (int64_t i = 0; i < scales; ++i) {
        EXPECT_TRUE(testing::SameBits(&all.scales[static_cast<size_t>(16 * i) + row],
                                      &one.scales[i], sizeof(float)))
            << NameOf(format.dtype);
      }
    }
  }
}

// What kernels rely on: two neighbouring products with activations up to 127 fit 16 bits.
TEST(Unpack, CodesAreBelow128) {
  std::mt19937 random(6);
  for (const TileFormat& format : StoredFormats()) {
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<std::byte> bytes(static_cast<size_t>(format.stored_bytes));
      for (std::byte& b : bytes) b = static_cast<std::byte>(trial == 0 ? 0xff : random());
      UnpackedBlock block;
      UnpackBlock(format.dtype, bytes.data(), block);
      for (int64_t i = 0; i < format.stored_columns; ++i) {
        ASSERT_LT(block.codes[i], 128) << NameOf(format.dtype);
        ASSERT_GT(block.codes[i], 0) << NameOf(format.dtype);
      }
    }
  }
}

// Of a grid whose entries are chosen, none occurs twice.
template <size_t n>
size_t CountDifferent(const uint16_t (&grid)[n]) {
  return std::set<uint16_t>(std::begin(grid), std::end(grid)).size();
}

TEST(Unpack, EntriesOfGridsDiffer) {
  EXPECT_EQ(CountDifferent(kIq2XxsGrid), 256u);
  EXPECT_EQ(CountDifferent(kIq2XsGrid), 512u);
  EXPECT_EQ(CountDifferent(kIq2SGrid), 1024u);
  EXPECT_EQ(CountDifferent(kIq1Grid), 2048u);
  EXPECT_EQ(CountDifferent(kIq3XxsGrid), 256u);
  EXPECT_EQ(CountDifferent(kIq3SGrid), 512u);
}

TEST(Unpack, StoredSignsAreEvenInNumber) {
  for (size_t bits = 0; bits < 128; ++bits) {
    EXPECT_EQ(__builtin_popcountll(kEvenSigns[bits]) % 16, 0) << bits;
    EXPECT_EQ(kEvenSigns[bits] << 8, kByteMasks[bits] << 8) << bits;
  }
}

}  // namespace
}  // namespace hearth::kernels
