#include "kernels/test_util.h"

namespace hearth::kernels {
namespace {

class ProbeTest : public testing::TableTest {};

TEST_P(ProbeTest, CountsItsMultiplyAdds) {
  const int64_t one = table().probe_int8(1);
  EXPECT_GE(one, 8);
  EXPECT_EQ(table().probe_int8(0), 0);
  EXPECT_EQ(table().probe_int8(1000), 1000 * one);
}

TEST_P(ProbeTest, CountsItsFloatOperations) {
  const int64_t one = table().probe_float(1);
  EXPECT_GE(one, 16);
  EXPECT_EQ(table().probe_float(0), 0);
  EXPECT_EQ(table().probe_float(1000), 1000 * one);
}

TEST_P(ProbeTest, ReadsEveryWordAndNothingElse) {
  std::mt19937_64 random(1);
  for (const int64_t lines : {0, 1, 3, 4, 5, 37, 1000}) {
    testing::GuardedArray<uint64_t> data(lines * 8);
    uint64_t expected = 0;
    for (uint64_t& word : data) expected ^= word = random();
    const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
    EXPECT_EQ(table().probe_read(bytes, lines * 64), expected) << lines;
  }
}

HEARTH_FOR_ALL_TABLES(ProbeTest);

}  // namespace
}  // namespace hearth::kernels
