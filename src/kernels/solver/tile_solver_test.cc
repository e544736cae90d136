#include "kernels/solver/tile_solver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/test_util.h"

namespace hearth::kernels {
namespace {

// The instructions that M names: registers and columns; results, rows and tokens of a register.
// Without VNNI AVX2 multiplies bytes that were widened to 16 bits, of which a register holds four
// rows' four.
constexpr MnnUnit kI8Sdot = {32, 4, 4, 4, 4};
constexpr MnnUnit kI8mm = {32, 8, 4, 2, 2};
constexpr MnnUnit kAvx2 = {16, 4, 4, 4, 1};
constexpr MnnUnit kAvx512 = {32, 4, 16, 16, 1};

TEST(TileSolver, HasTable2OfMnn) {
  EXPECT_EQ(SolveTable2(kI8Sdot), (MnnTiles{12, 8, 4}));
  EXPECT_EQ(SolveTable2(kI8mm), (MnnTiles{10, 8, 8}));
  EXPECT_EQ(SolveTable2(kAvx2), (MnnTiles{4, 8, 4}));
  EXPECT_EQ(SolveTable2(kAvx512), (MnnTiles{4, 64, 4}));
}

TEST(TileSolver, GrowsTilesWithRegisters) {
  MnnTiles before;
  for (int64_t registers = 8; registers <= 128; registers *= 2) {
    const MnnTiles tiles = SolveTable2({registers, 4, 4, 4, 1});
    EXPECT_GE(tiles.tokens * tiles.rows, before.tokens * before.rows) << registers;
    EXPECT_LE(tiles.tokens + tiles.rows / 4 + tiles.tokens * tiles.rows / 4, registers);
    before = tiles;
  }
}

class TileSolverTest : public testing::TableTest {
 protected:
  const TileUnit& unit() { return table().tile_unit; }
};

TEST_P(TileSolverTest, TakesTheCheapestOfAllGeometries) {
  for (const int64_t tokens : {2, 3, 7, 8, 24, 96, 97, 500}) {
    const std::vector<TileGeometry> all = TileGeometries(unit(), tokens);
    const TileGeometry chosen = SolveTiles(unit(), tokens, 1);
    EXPECT_NE(std::find(all.begin(), all.end(), chosen), all.end()) << tokens;
    if (unit().registers == 0) continue;
    const double cost = TileCost(unit(), tokens, chosen);
    EXPECT_LT(cost, std::numeric_limits<double>::infinity());
    for (const TileGeometry& other : all) {
      const double of_other = TileCost(unit(), tokens, other);
      EXPECT_LE(cost, 1.001 * of_other);
      if (of_other == cost) {
        EXPECT_LE(other.panel_tokens, chosen.panel_tokens);
      }
    }
  }
}

TEST_P(TileSolverTest, CostsNoLessForMoreTokens) {
  if (unit().registers == 0) return;
  double before = 0;
  for (int64_t tokens = 2; tokens <= 200; ++tokens) {
    const double cost = TileCost(unit(), tokens, SolveTiles(unit(), tokens, 1));
    // 12 tokens are one step of 12, 11 are three (6, 4, 1).
    EXPECT_GE(cost, 0.99 * before) << tokens;
    before = cost;
  }
}

TEST_P(TileSolverTest, ReadsOneTokensTilesInTheStreamsOfTheProcessor) {
  for (const int64_t streams : {1, 2, 4}) {
    const int64_t expected = unit().registers == 0 ? 1 : streams;
    EXPECT_EQ(SolveTiles(unit(), 1, streams).tiles, expected);
    EXPECT_EQ(TileChoice(unit(), streams).For(1).tiles, expected);
  }
}

TEST_P(TileSolverTest, PrefersWhatWasMeasured) {
  const TileGeometry one = TileGeometries(unit(), 1).back();
  const TileGeometry four = TileGeometries(unit(), 4).front();
  const TileGeometry many = TileGeometries(unit(), 30).back();
  const TileChoice choice(unit(), 1, std::vector<TilesForTokens>{{1, one}, {4, four}, {30, many}});
  EXPECT_EQ(choice.For(1), one);
  EXPECT_EQ(choice.For(2), four);
  EXPECT_EQ(choice.For(4), four);
  EXPECT_EQ(choice.For(5), many);
  EXPECT_EQ(choice.For(3000), many);
  EXPECT_EQ(TileChoice(unit(), 1).For(8), SolveTiles(unit(), 8, 1));
  EXPECT_EQ(TileChoice(unit(), 1).For(5000), SolveTiles(unit(), 256, 1));
}

TEST_P(TileSolverTest, RefusesGeometriesThatAreNot) {
  for (const TileGeometry& odd : {TileGeometry{.panel_tokens = 11}, TileGeometry{.tiles = 3},
                                  TileGeometry{.panel_tokens = 1000, .unpacks = true}}) {
    EXPECT_THROW(TileChoice(unit(), 1, std::vector<TilesForTokens>{{24, odd}}), Error);
  }
}

HEARTH_FOR_ALL_TABLES(TileSolverTest);

}  // namespace
}  // namespace hearth::kernels
