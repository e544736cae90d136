#include "storage/region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace hearth {
namespace {

// Where every byte that is written comes from: what regions mean, without any fusion.
std::map<uint64_t, std::pair<size_t, uint64_t>> MovesOf(const std::vector<Region>& regions) {
  std::map<uint64_t, std::pair<size_t, uint64_t>> moves;
  for (const Region& region : regions) {
    const auto& [a, b, c] = region.loops;
    for (uint64_t i = 0; i < a.count; ++i) {
      for (uint64_t j = 0; j < b.count; ++j) {
        for (uint64_t k = 0; k < c.count; ++k) {
          for (uint64_t byte = 0; byte < region.bytes; ++byte) {
            const uint64_t from = i * a.from_step + j * b.from_step + k * c.from_step + byte;
            const uint64_t to = i * a.to_step + j * b.to_step + k * c.to_step + byte;
            moves[region.to + to] = {region.source, region.from + from};
          }
        }
      }
    }
  }
  return moves;
}

uint64_t RunsOfAll(const std::vector<Region>& regions) {
  uint64_t runs = 0;
  for (const Region& region : regions) runs += RunsOf(region).value();
  return runs;
}

// Every run of a region as one of its own, in the order of its loops.
std::vector<Region> Unrolled(const Region& region) {
  std::vector<Region> runs;
  const auto& [a, b, c] = region.loops;
  for (uint64_t i = 0; i < a.count; ++i) {
    for (uint64_t j = 0; j < b.count; ++j) {
      for (uint64_t k = 0; k < c.count; ++k) {
        runs.push_back({.source = region.source,
                        .from = region.from + i * a.from_step + j * b.from_step + k * c.from_step,
                        .to = region.to + i * a.to_step + j * b.to_step + k * c.to_step,
                        .bytes = region.bytes});
      }
    }
  }
  return runs;
}

class RegionTest : public ::testing::Test {
 protected:
  uint64_t UpTo(uint64_t most) { return random_() % (most + 1); }
  // Steps of the source are those of a packed one in another order, with gaps, or any.
  Region Random() {
    Region region = {.source = UpTo(1), .from = UpTo(20), .bytes = 1 + UpTo(4)};
    for (RegionLoop& loop : region.loops) loop.count = 1 + UpTo(3);
    region = PackedRegion(region, UpTo(20));
    std::array<size_t, 3> order = {0, 1, 2};
    std::shuffle(order.begin(), order.end(), random_);
    uint64_t step = region.bytes + (UpTo(2) == 0 ? UpTo(3) : 0);
    for (const size_t i : order) {
      region.loops[i].from_step = UpTo(5) == 0 ? UpTo(12) : step;
      step *= region.loops[i].count;
    }
    std::shuffle(region.loops.begin(), region.loops.end(), random_);
    return region;
  }

  std::mt19937 random_{5};
};

TEST_F(RegionTest, FusionKeepsEveryMove) {
  for (int round = 0; round < 3000; ++round) {
    const Region region = Random();
    const Region fused = FusedRegion(region);
    ASSERT_EQ(MovesOf({fused}), MovesOf({region})) << round;
    ASSERT_LE(RunsOf(fused), RunsOf(region));
    ASSERT_EQ(BytesOf(fused), BytesOf(region));
    ASSERT_EQ(ReachOf(fused), ReachOf(region));
    ASSERT_EQ(FusedRegion(fused), fused);
    for (size_t i = 0; i < 3; ++i) ASSERT_EQ(fused.loops[i].count > 1, i < NumLoops(fused));
  }
}

TEST_F(RegionTest, JoiningKeepsEveryMove) {
  for (int round = 0; round < 1000; ++round) {
    std::vector<Region> regions;
    uint64_t to = 0;
    for (uint64_t i = 0; i < 1 + UpTo(3); ++i) {
      // Some go on in the source where the last one ended, as tensors of a file do.
      Region region = i > 0 && UpTo(1) == 0 ? regions.back() : Random();
      if (i > 0 && UpTo(1) == 0) region.from += ReachOf(region).value();
      region = PackedRegion(region, to);
      to += BytesOf(region).value();
      regions.push_back(region);
    }
    std::vector<Region> runs;
    for (const Region& region : regions) {
      for (const Region& run : Unrolled(region)) runs.push_back(run);
    }
    const std::vector<Region> fused = FuseRegions(regions), rolled = FuseRegions(runs);
    ASSERT_EQ(MovesOf(fused), MovesOf(regions)) << round;
    ASSERT_EQ(MovesOf(rolled), MovesOf(regions)) << round;
    ASSERT_LE(fused.size(), regions.size());
    ASSERT_LE(rolled.size(), runs.size());
  }
}

// What regions are for, in known numbers.
TEST_F(RegionTest, RunsOfAMatrixBecomeOne) {
  // Three matrices of 4 rows of 8 bytes, row by row.
  Region rows = {.bytes = 8, .loops = {{{3, 32, 0}, {4, 8, 0}}}};
  rows = PackedRegion(rows, 100);
  const Region whole = {.to = 100, .bytes = 96};
  EXPECT_EQ(FusedRegion(rows), whole);
  EXPECT_EQ(FuseRegions(Unrolled(rows)), std::vector<Region>{whole});
}

TEST_F(RegionTest, RowsOfHeadsAreFoundInTheirRuns) {
  // Two heads of 6 rows of 5 bytes: 0 3 1 4 2 5.
  Region heads = {.from = 7, .bytes = 5, .loops = {{{2, 30, 0}, {3, 5, 0}, {2, 15, 0}}}};
  heads = PackedRegion(heads, 0);
  EXPECT_EQ(FuseRegions(Unrolled(heads)), std::vector<Region>{heads});
  EXPECT_EQ(RunsOfAll(Unrolled(heads)), 12u);
  // Every second expert of a file, which is what halves of gate and up are.
  Region halves = PackedRegion({.from = 16, .bytes = 16, .loops = {{{8, 32, 0}}}}, 0);
  EXPECT_EQ(FuseRegions(Unrolled(halves)), std::vector<Region>{FusedRegion(halves)});
}

TEST_F(RegionTest, ATransposedMatrixIsNoLongerRun) {
  const Region transposed = PackedRegion({.bytes = 4, .loops = {{{3, 4, 0}, {5, 12, 0}}}}, 0);
  EXPECT_EQ(NumLoops(FusedRegion(transposed)), 2u);
  EXPECT_EQ(RunsOf(FusedRegion(transposed)), 15u);
}

TEST_F(RegionTest, NumbersBeyond64BitsAreNone) {
  const uint64_t many = uint64_t{1} << 40;
  EXPECT_EQ(RunsOf({.bytes = 1, .loops = {{{many}, {many}}}}), std::nullopt);
  EXPECT_EQ(BytesOf({.bytes = many, .loops = {{{many}}}}), std::nullopt);
  EXPECT_EQ(ReachOf({.bytes = 1, .loops = {{{many, many}}}}), std::nullopt);
  EXPECT_EQ(ReachOf({.from = UINT64_MAX, .bytes = 1}), std::nullopt);
  EXPECT_EQ(ReachOf({.from = UINT64_MAX, .bytes = 0}), 0u);
  EXPECT_EQ(ReachOf({.from = 5, .bytes = 2, .loops = {{{3, 10}, {2, 4}}}}), 26u);
  EXPECT_EQ(BytesOf({.bytes = 2, .loops = {{{3, 10}, {0, 4}}}}), 0u);
}

}  // namespace
}  // namespace hearth
