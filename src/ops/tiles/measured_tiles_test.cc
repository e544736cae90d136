#include "ops/tiles/measured_tiles.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/cpu.h"
#include "base/memory_info.h"
#include "ops/tiles/tile_probe.h"
#include "plan/machine_hash.h"

namespace hearth {
namespace {

class MeasuredTilesTest : public ::testing::Test {
 protected:
  MeasuredTilesTest()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("hearth-tiles-{}.json", getpid())) {}
  ~MeasuredTilesTest() override { std::filesystem::remove(path_); }

  void Write(const std::string& text) { std::ofstream(path_) << text; }
  std::string Machine(const std::string& isa) const {
    return MachineHash(CpuModelName(), isa, AvailableCpus(), TotalMemoryBytes());
  }
  static std::string Profile(const std::string& machine, const std::string& tiles) {
    return fmt::format(R"({{"version": 8, "machine": "{}", "tiles": [{}]}})", machine, tiles);
  }
  static std::string Entry(int64_t tokens, const TileGeometry& geometry) {
    return fmt::format(
        R"({{"tokens": {}, "panel_tokens": {}, "tiles": {}, "unpacks": {}, "seconds": 1e-5,
             "solved_seconds": 2e-5}})",
        tokens, geometry.panel_tokens, geometry.tiles, geometry.unpacks);
  }
  // A geometry for 24 tokens that the solver does not choose, where there is another.
  static TileGeometry Other(const Compute& compute) {
    const auto all = kernels::TileGeometries(compute.kernels().tile_unit, 24);
    return all.front() == compute.TilesFor(24) ? all.back() : all.front();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST_F(MeasuredTilesTest, AreUsedOnTheMachineTheyAreOf) {
  for (const std::string& isa : UsableIsaNames()) {
    Compute compute(isa, 1);
    const TileGeometry other = Other(compute);
    Write(Profile(Machine(isa), Entry(24, other)));
    EXPECT_TRUE(UseMeasuredTiles(compute, path())) << isa;
    EXPECT_EQ(compute.TilesFor(24), other) << isa;
    EXPECT_EQ(compute.TilesFor(500), other) << isa;
  }
}

TEST_F(MeasuredTilesTest, LeaveTheSolversWhereTheyAreOfNoUse) {
  Compute compute("auto", 1);
  const TileGeometry solved = compute.TilesFor(24);
  const std::string machine = Machine(compute.isa());
  const std::string entry = Entry(24, Other(compute));
  EXPECT_FALSE(UseMeasuredTiles(compute, ""));
  EXPECT_FALSE(UseMeasuredTiles(compute, path()));
  for (const std::string& text :
       {std::string("no JSON"), std::string("[]"), Profile("0000000000000000", entry),
        Profile(Machine("another"), entry), Profile(machine, ""),
        Profile(machine, R"({"tokens": 24})"), Profile(machine, entry + ", " + entry),
        Profile(machine, Entry(24, {.panel_tokens = 11, .unpacks = true})),
        Profile(machine, Entry(24, {.panel_tokens = 4, .tiles = 3, .unpacks = true})),
        fmt::format(R"({{"machine": "{}", "tiles": {{"tokens": 6, "rows": 32}}}})", machine)}) {
    Write(text);
    EXPECT_FALSE(UseMeasuredTiles(compute, path())) << text;
    EXPECT_EQ(compute.TilesFor(24), solved) << text;
  }
}

TEST(UsersHardwareFileTest, LiesInTheUsersCache) {
  const auto set = [](const char* name, const char* value) { setenv(name, value, 1); };
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const std::string before = cache == nullptr ? "" : cache;
  set("XDG_CACHE_HOME", "/somewhere");
  EXPECT_EQ(UsersHardwareFile(), "/somewhere/hearth/hardware.json");
  if (cache == nullptr) {
    unsetenv("XDG_CACHE_HOME");
  } else {
    set("XDG_CACHE_HOME", before.c_str());
  }
}

TEST(FastestTiles, KeepsTheSolversWhereNothingIsClearlyFaster) {
  const TileGeometry a{.panel_tokens = 2}, b{.panel_tokens = 4}, c{.panel_tokens = 6};
  const std::vector<TileGeometry> all = {a, b, c};
  const auto seconds = [](double x, double y, double z) {
    return std::vector<std::vector<double>>{{x, x, 9}, {y, y, 9}, {z, z, 9}};
  };
  EXPECT_EQ(FastestTiles(all, seconds(1.3, 1.01, 1), b), b);
  EXPECT_EQ(FastestTiles(all, seconds(1.3, 1.1, 1), b), c);
  EXPECT_EQ(FastestTiles(all, seconds(0.5, 1, 1), b), a);
}

TEST(TileProbe, TimesEveryGeometry) {
  Compute compute("auto", 2);
  const std::vector<std::byte> memory(4 << 20, std::byte{0x30});
  TileProbe probe(compute, memory, DType::kQ4_0);
  for (const int64_t tokens : {1, 7, 24}) {
    for (const TileGeometry& geometry : probe.Geometries(tokens)) {
      EXPECT_GT(probe.SecondsOf(tokens, geometry, 0), 0);
    }
  }
}

}  // namespace
}  // namespace hearth
