#include "tensor/row_groups.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

struct Expected {
  DType dtype;
  int64_t k;
  int64_t lanes;
  int64_t groups;
  int64_t scales;
  int64_t minimums;
  int64_t bytes;
};

// Worked out by hand from the description of the packed bundle.
TEST(RowGroups, HaveTheSizesOfTheFormat) {
  const Expected cases[] = {
      {DType::kQ4_0, 4096, 128, 8, 2048, 2304, 2304},
      {DType::kQ4_0, 1536, 48, 3, 768, 864, 864},
      {DType::kQ4_0, 256, 8, 1, 128, 144, 144},
      {DType::kQ4_1, 256, 8, 1, 128, 144, 160},
      {DType::kQ4_1, 4096, 128, 8, 2048, 2304, 2560},
      {DType::kQ8_0, 4096, 128, 8, 4096, 4352, 4352},
      {DType::kQ8_0, 32, 4, 1, 128, 136, 136},
      {DType::kQ4_0, 896, 28, 2, 448, 504, 504},
      {DType::kQ4_0, 928, 32, 2, 512, 576, 576},
      {DType::kQ4_0, 0, 0, 0, 0, 0, 0},
  };
  for (const Expected& e : cases) {
    const RowGroups row = RowGroupsOf(e.dtype, e.k);
    SCOPED_TRACE(::testing::Message() << NameOf(e.dtype) << " " << e.k);
    EXPECT_EQ(row.blocks, e.k / 32);
    EXPECT_EQ(row.lanes, e.lanes);
    EXPECT_EQ(row.groups, e.groups);
    EXPECT_EQ(row.group_bytes, e.dtype == DType::kQ8_0 ? 512 : 256);
    EXPECT_EQ(row.scales, e.scales);
    EXPECT_EQ(row.minimums, e.minimums);
    EXPECT_EQ(row.bytes, e.bytes);
  }
}

TEST(RowGroups, ExistForThreeTypes) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const bool expected = dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ8_0;
    EXPECT_EQ(HasRowGroups(dtype), expected) << NameOf(dtype);
    EXPECT_EQ(RowGroupsOf(dtype, 256).bytes != 0, expected) << NameOf(dtype);
  }
}

// A row takes the bytes of its GGUF blocks where they fill their lanes.
TEST(RowGroups, TakeNoMoreThanBlocks) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    for (int64_t k = 128; k <= 4096; k += 128) {
      EXPECT_EQ(RowGroupsOf(dtype, k).bytes,
                static_cast<int64_t>(RowBytes(dtype, static_cast<size_t>(k))));
    }
  }
}

}  // namespace
}  // namespace hearth
