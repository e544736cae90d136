// Hashes of many rows: those of the library, which the scalar table calls.
#include <numeric>

#include "kernels/test_util.h"

namespace hearth::kernels {
namespace {

class Xxh32Test : public testing::TableTest {
 protected:
  std::vector<uint32_t> HashesOf(const KernelTable& kernels, const RowList& list, size_t bytes) {
    testing::GuardedArray<uint32_t> out(list.count);
    kernels.xxh32_rows({list, bytes, out.data()});
    return out.ToVector();
  }

  std::mt19937 random_{47};
};

// Rows end at a page that must not be touched.
TEST_P(Xxh32Test, EveryLengthAndNumberOfRows) {
  constexpr int64_t kRows = 37;
  for (const size_t bytes : {0u, 1u, 3u, 4u, 15u, 16u, 17u, 31u, 63u, 64u, 65u, 127u, 264u, 575u,
                             576u, 2304u, 4608u, 4611u}) {
    testing::GuardedArray<std::byte> data(static_cast<int64_t>(kRows * bytes));
    for (std::byte& b : data) b = static_cast<std::byte>(random_());
    std::vector<int32_t> rows(kRows);
    for (int32_t& row : rows) row = static_cast<int32_t>(random_() % kRows);
    rows.front() = kRows - 1;
    for (const int64_t count : {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 36, 37}) {
      const RowList list{data.data(), bytes, rows.data(), count};
      ASSERT_EQ(HashesOf(table(), list, bytes), HashesOf(oracle(), list, bytes))
          << count << " rows of " << bytes;
    }
  }
}

TEST_P(Xxh32Test, EveryBitMatters) {
  constexpr int64_t kRows = 5;
  constexpr size_t kBytes = 87;
  std::vector<std::byte> data(kRows * kBytes, std::byte{0x5a});
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const RowList list{data.data(), kBytes, rows.data(), kRows};
  const std::vector<uint32_t> before = HashesOf(table(), list, kBytes);
  for (size_t bit = 0; bit < 8 * data.size(); ++bit) {
    const auto flip = static_cast<std::byte>(1 << bit % 8);
    data[bit / 8] ^= flip;
    std::vector<uint32_t> after = HashesOf(table(), list, kBytes);
    const size_t row = bit / 8 / kBytes;
    EXPECT_NE(after[row], before[row]) << bit;
    after[row] = before[row];
    EXPECT_EQ(after, before) << bit;
    data[bit / 8] ^= flip;
  }
}

HEARTH_FOR_ALL_TABLES(Xxh32Test);

}  // namespace
}  // namespace hearth::kernels
