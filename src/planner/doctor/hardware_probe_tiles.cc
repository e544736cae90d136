// Which geometries of products with weight tiles are the fastest: the solver's choice, checked.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "base/buffer.h"
#include "base/cpu.h"
#include "base/memory_info.h"
#include "ops/tiles/tile_probe.h"
#include "planner/doctor/hardware_probe.h"

namespace hearth {
namespace {

// All geometries in all rounds together take about this, and half as much again for what does not
// count; two calls each where that takes longer.
constexpr double kAllTilesSeconds = 0.7;
// Twice the largest cache, so that one token's weights come from memory, within bounds: enough for
// all threads, and little beside what the speeds of memory are measured on.
constexpr uint64_t kLeastTileBytes = uint64_t{64} << 20;
constexpr uint64_t kMostTileBytes = uint64_t{256} << 20;
// Halves of it are small normal numbers, as scales; codes have any value.
constexpr int kFirstByte = 0x30;

// The type of most weights in files that are quantized: with scales and minimums.
constexpr DType kTileType = DType::kQ4_K;

uint64_t TileMemoryBytes(int threads) {
  const uint64_t wanted = std::clamp(2 * LastLevelCacheBytes(), kLeastTileBytes, kMostTileBytes);
  const uint64_t least = static_cast<uint64_t>(threads) * TileProbe::kLeastBytes;
  return std::max(std::min(wanted, AvailableMemoryBytes() / 8), least);
}

Buffer FilledMemory(Budget& budget, uint64_t bytes) {
  Buffer memory(budget, "operands", bytes);
  std::memset(memory.data(), kFirstByte, memory.size_bytes());
  return memory;
}

class TilesProbe final : public HardwareProbe {
 public:
  explicit TilesProbe(const ProfilerEffort& effort)
      : compute_("auto", AvailableCpus()),
        memory_(FilledMemory(budget_, TileMemoryBytes(compute_.threads()))),
        probe_(compute_, {memory_.data(), memory_.size_bytes()}, kTileType) {
    size_t count = 0;
    for (const int64_t tokens : kMeasuredTokens) {
      rows_.push_back({tokens, probe_.Geometries(tokens), {}});
      rows_.back().seconds.resize(rows_.back().geometries.size());
      count += rows_.back().geometries.size();
    }
    seconds_ = kAllTilesSeconds / (static_cast<double>(count) * effort.rounds);
    // Nothing to choose between.
    if (count == std::size(kMeasuredTokens)) rows_.clear();
  }

  int steps() const override { return static_cast<int>(rows_.size()); }
  std::string Name(int step) const override {
    return fmt::format("tiles for {} tokens", rows_[static_cast<size_t>(step)].tokens);
  }
  void Measure(int step) override {
    Row& row = rows_[static_cast<size_t>(step)];
    for (size_t i = 0; i < row.geometries.size(); ++i) {
      row.seconds[i].push_back(probe_.SecondsOf(row.tokens, row.geometries[i], seconds_));
    }
  }
  void Finish(HardwareProfile& profile) const override {
    for (const Row& row : rows_) {
      const TileGeometry solved = probe_.Solved(row.tokens);
      const TileGeometry fastest = FastestTiles(row.geometries, row.seconds, solved);
      profile.tiles.push_back({{row.tokens, fastest}, row.Quiet(fastest), row.Quiet(solved)});
    }
  }

 private:
  struct Row {
    int64_t tokens;
    std::vector<TileGeometry> geometries;
    std::vector<std::vector<double>> seconds;  // of each, per round

    double Quiet(const TileGeometry& geometry) const {
      const auto at = std::find(geometries.begin(), geometries.end(), geometry);
      return QuietSeconds(seconds[static_cast<size_t>(at - geometries.begin())]);
    }
  };

  Budget budget_;
  Compute compute_;
  Buffer memory_;
  TileProbe probe_;
  std::vector<Row> rows_;
  double seconds_ = 0;
};

}  // namespace

std::unique_ptr<HardwareProbe> MakeTileProbe(const ProfilerEffort& effort) {
  return std::make_unique<TilesProbe>(effort);
}

}  // namespace hearth
