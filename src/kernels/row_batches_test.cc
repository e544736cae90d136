// Rows for many tokens of every table: tiles against those that blocks are packed into, the others
// against the kernels for one token, whose bits they promise.
#include <cmath>
#include <cstring>
#include <memory>

#include "kernels/row_pack.h"
#include "kernels/test_util.h"
#include "kernels/tile_pack.h"
#include "tensor/row_groups.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels {
namespace {

using testing::DataKind;
using testing::GuardedArray;
using testing::Placement;
using testing::RandomFloats;

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

// Random rows, packed against a guard, and their GGUF blocks.
struct Rows {
  DType dtype;
  int64_t k;
  int64_t count;
  size_t stride;
  std::vector<std::byte> blocks;
  std::unique_ptr<GuardedArray<std::byte>> bytes;
  std::vector<int32_t> list;  // all rows, in an order of their own

  Rows(DType type, int64_t columns, int64_t rows, uint32_t seed)
      : dtype(type), k(columns), count(rows) {
    std::mt19937 random(seed);
    blocks = testing::RandomBlocks(dtype, rows * k, random, DataKind::kNormal);
    const auto row_bytes = static_cast<size_t>(RowGroupsOf(dtype, k).bytes);
    stride = row_bytes + seed % 5;
    std::vector<std::byte> all(stride * static_cast<size_t>(rows - 1) + row_bytes);
    for (int64_t r = 0; r < rows; ++r) {
      const size_t of_blocks = RowBytes(dtype, static_cast<size_t>(k));
      PackRow(dtype, blocks.data() + of_blocks * static_cast<size_t>(r), k,
              all.data() + stride * static_cast<size_t>(r));
      list.push_back(static_cast<int32_t>(r));
    }
    std::shuffle(list.begin(), list.end(), random);
    bytes = std::make_unique<GuardedArray<std::byte>>(
        all, seed % 2 == 0 ? Placement::kAtEnd : Placement::kAtStart);
  }

  RowList List(int64_t first, int64_t rows) const {
    return {bytes->data(), stride, list.data() + first, rows};
  }
  size_t index() const { return static_cast<size_t>(dtype); }
};

std::vector<GroupQ8> RandomTokens(const KernelTable& table, int64_t k, int64_t tokens,
                                  std::mt19937& random) {
  const int64_t groups = RowGroupsOf(DType::kQ4_0, k).groups;
  std::vector<GroupQ8> x(static_cast<size_t>(groups * tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<float> values = RandomFloats(random, k, DataKind::kNormal);
    table.quantize_q8_groups(values.data(), k, x.data() + t * groups);
  }
  return x;
}

class RowBatchesTest : public testing::TableTest {};

TEST_P(RowBatchesTest, TilesAreThoseOfTheBlocks) {
  uint32_t seed = 1;
  for (const DType dtype : kTypes) {
    for (int64_t blocks = 1; blocks <= 36; ++blocks) {
      const int64_t count = 1 + seed % 16;
      const Rows rows(dtype, 32 * blocks, count, seed++);
      const TileLayout layout(dtype, rows.k);
      const size_t row_bytes = RowBytes(dtype, static_cast<size_t>(rows.k));
      std::vector<std::byte> listed;
      for (const int32_t r : rows.list) {
        const std::byte* row = rows.blocks.data() + row_bytes * static_cast<size_t>(r);
        listed.insert(listed.end(), row, row + row_bytes);
      }
      std::vector<std::byte> expected(layout.tile_bytes());
      PackTiles(dtype, layout, listed.data(), row_bytes, count, expected.data());
      GuardedArray<std::byte> actual(std::vector<std::byte>(layout.tile_bytes(), std::byte{0xee}));
      table().rows_to_tile[rows.index()]({rows.List(0, count), rows.k, actual.data()});
      ASSERT_EQ(actual.ToVector(), expected) << NameOf(dtype) << " " << blocks << " " << count;
    }
  }
}

TEST_P(RowBatchesTest, NoRowsMakeATileOfZeros) {
  for (const DType dtype : kTypes) {
    const TileLayout layout(dtype, 96);
    std::vector<std::byte> tile(layout.tile_bytes(), std::byte{0xee});
    table().rows_to_tile[static_cast<size_t>(dtype)]({{nullptr, 0, nullptr, 0}, 96, tile.data()});
    EXPECT_EQ(tile, std::vector<std::byte>(layout.tile_bytes()));
  }
}

// Entries of some tokens: ascending rows, where `is_hot` more than half of all pairs and less
// otherwise; some tokens have none, others all of the rows.
struct Entries {
  std::vector<int32_t> begin, places;
  std::vector<float> a;

  Entries(int64_t tokens, int64_t rows, bool is_hot, std::mt19937& random) : begin(1) {
    for (int64_t t = 0; t < tokens; ++t) {
      const uint64_t half = random() % 4;  // half of the tokens have these thirds of the rows
      const uint64_t share = t % 2 == 0 ? (is_hot ? 3 : 0) : half;
      for (int64_t r = 0; r < rows; ++r) {
        if (random() % 3 < share) places.push_back(static_cast<int32_t>(r));
      }
      begin.push_back(static_cast<int32_t>(places.size()));
    }
    a = RandomFloats(random, std::ssize(places), DataKind::kNormal);
  }

  size_t BeginOf(int64_t token) const {
    return static_cast<size_t>(begin[static_cast<size_t>(token)]);
  }
  // The rows of a token's entries.
  std::vector<int32_t> RowsOf(int64_t token, const Rows& rows) const {
    std::vector<int32_t> listed;
    for (size_t e = BeginOf(token); e < BeginOf(token + 1); ++e) {
      listed.push_back(rows.list[static_cast<size_t>(places[e])]);
    }
    return listed;
  }
};

std::vector<std::pair<DType, bool>> TypesAndHeat() {
  std::vector<std::pair<DType, bool>> all;
  for (const DType dtype : kTypes) {
    for (const bool is_hot : {false, true}) all.emplace_back(dtype, is_hot);
  }
  return all;
}

// More tokens than are put in order at once, among others.
constexpr int64_t kTokenCounts[] = {1, 7, 8, 1030};

TEST_P(RowBatchesTest, RowsTimesTokensGiveTheBitsOfEveryToken) {
  uint32_t seed = 100;
  for (const auto& [dtype, is_hot] : TypesAndHeat()) {
    for (const int64_t blocks : {1, 3, 4, 7, 15, 16, 17, 32, 37, 128}) {
      const int64_t tokens = blocks > 4 ? kTokenCounts[seed % 3] : kTokenCounts[seed % 4];
      const Rows rows(dtype, 32 * blocks, blocks == 16 ? kRowsOfBatch : 1 + seed % kRowsOfBatch,
                      seed);
      std::mt19937 random(++seed);
      GuardedArray<GroupQ8> x(RandomTokens(table(), rows.k, tokens, random));
      const Entries entries(tokens, rows.count, is_hot, random);
      const size_t count = entries.places.size();
      GuardedArray<float> lanes(std::vector<float>(count * kLanesOfEntry, -1.0f));
      GuardedArray<float> out(std::vector<float>(count, -1.0f));
      table().rows_times_tokens[rows.index()](
          {rows.List(0, rows.count), rows.k, x.data(), tokens, entries.begin.data(),
           entries.places.data(), lanes.data(), out.data(),
           seed % 2 == 0 ? rows.List(0, rows.count) : RowList{}});
      for (int64_t t = 0; t < tokens; ++t) {
        const std::vector<int32_t> listed = entries.RowsOf(t, rows);
        std::vector<float> expected(listed.size());
        table().row_dot[rows.index()](
            {{rows.bytes->data(), rows.stride, listed.data(), std::ssize(listed)},
             rows.k,
             x.data() + t * RowGroupsOf(dtype, rows.k).groups,
             expected.data()});
        ASSERT_TRUE(testing::SameBits(out.data() + entries.BeginOf(t), expected.data(),
                                      expected.size() * sizeof(float)))
            << NameOf(dtype) << " " << blocks << " blocks, token " << t;
      }
    }
  }
}

TEST_P(RowBatchesTest, SumsAreTheBitsOfScaledAdds) {
  uint32_t seed = 200;
  for (const auto& [dtype, is_hot] : TypesAndHeat()) {
    for (const int64_t blocks : {1, 3, 4, 13, 16, 17, 35}) {
      const int64_t tokens = blocks > 4 ? 7 : kTokenCounts[seed % 4];
      const int64_t count_of_rows = blocks == 16 ? kRowsOfSums : 1 + seed * 37 % kRowsOfSums;
      const Rows rows(dtype, 32 * blocks, count_of_rows, seed++);
      std::mt19937 random(seed);
      const Entries entries(tokens, rows.count, is_hot, random);
      const int64_t groups = RowGroupsOf(dtype, rows.k).groups;
      std::vector<float> expected(static_cast<size_t>(tokens * rows.k));
      for (int64_t t = 0; t < tokens; ++t) {
        const std::vector<int32_t> listed = entries.RowsOf(t, rows);
        table().row_scaled_add[rows.index()](
            {{rows.bytes->data(), rows.stride, listed.data(), std::ssize(listed)},
             entries.a.data() + entries.BeginOf(t),
             rows.k,
             0,
             groups,
             expected.data() + t * rows.k});
      }
      for (int64_t g = 0; g < groups; ++g) {
        GuardedArray<float> sums(std::vector<float>(static_cast<size_t>(512 * tokens)));
        table().rows_to_sums[rows.index()]({rows.List(0, rows.count), rows.k, g, tokens,
                                            entries.begin.data(), entries.places.data(),
                                            entries.a.data(), sums.data(),
                                            g % 2 == 0 ? rows.List(0, rows.count) : RowList{}});
        const int64_t count = std::min<int64_t>(16, blocks - 16 * g);
        for (int64_t t = 0; t < tokens; ++t) {
          GuardedArray<float> columns(std::vector<float>(static_cast<size_t>(32 * count), -1.0f));
          table().sums_to_columns(sums.data(), tokens, t, count, columns.data());
          ASSERT_TRUE(testing::SameBits(columns.data(), expected.data() + t * rows.k + 512 * g,
                                        columns.size() * sizeof(float)))
              << NameOf(dtype) << " " << blocks << " blocks, token " << t;
        }
      }
    }
  }
}

// Nearly all pairs are entries, but no token meets a row whose scales are no numbers.
TEST_P(RowBatchesTest, RowsThatNoTokenMeetsLeaveSumsAlone) {
  constexpr int64_t kTokens = 5, kRows = 20, kColumns = 32 * 16;
  for (const DType dtype : kTypes) {
    const Rows rows(dtype, kColumns, kRows, 7);
    const RowGroups layout = RowGroupsOf(dtype, kColumns);
    const auto damaged = static_cast<size_t>(rows.list.back());
    const uint16_t no_number = 0x7E00;
    std::memcpy(rows.bytes->data() + rows.stride * damaged + layout.scales, &no_number, 2);
    std::vector<int32_t> begin(1), places;
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int32_t r = 0; r + 1 < kRows; ++r) places.push_back(r);
      begin.push_back(static_cast<int32_t>(places.size()));
    }
    const std::vector<float> factors(places.size(), 0.5f);
    std::vector<float> sums(512 * kTokens);
    table().rows_to_sums[rows.index()]({rows.List(0, kRows), kColumns, 0, kTokens, begin.data(),
                                        places.data(), factors.data(), sums.data(), RowList{}});
    for (const float sum : sums) ASSERT_TRUE(std::isfinite(sum)) << NameOf(dtype);
  }
}

TEST_P(RowBatchesTest, ExistForTheTypesThatHaveRowGroups) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const bool expected = HasRowGroups(static_cast<DType>(i));
    EXPECT_EQ(table().rows_to_tile[i] != nullptr, expected) << i;
    EXPECT_EQ(table().rows_times_tokens[i] != nullptr, expected) << i;
    EXPECT_EQ(table().rows_to_sums[i] != nullptr, expected) << i;
  }
}

HEARTH_FOR_ALL_TABLES(RowBatchesTest);

}  // namespace
}  // namespace hearth::kernels
