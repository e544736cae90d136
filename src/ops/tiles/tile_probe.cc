#include "ops/tiles/tile_probe.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "kernels/dispatch.h"
#include "ops/linear.h"
#include "tensor/weight_tiles.h"

namespace hearth {
namespace {

constexpr int64_t kBlocks = TileProbe::kColumns / TileLayout::kBlockColumns;
// Of the matrix that the rows are a part of.
constexpr int64_t kOutStride = 4096;
constexpr double kToldApart = 1.02;
constexpr size_t kLineBytes = TileLayout::kLineBytes;

}  // namespace

TileProbe::TileProbe(Compute& compute, std::span<const std::byte> memory, DType dtype)
    : compute_(compute),
      memory_(memory),
      dtype_(dtype),
      row_(kBlocks),
      panels_(kMostTokens * kBlocks),
      out_(static_cast<size_t>(compute.threads() * kMostTokens * kOutStride)),
      place_(static_cast<size_t>(compute.threads())) {
  const auto threads = static_cast<size_t>(compute.threads());
  if (!TileLayout::IsTiled(dtype) || memory.size() / threads < kLeastBytes) {
    throw Error(ErrorCode::kInternal, "TileProbe", "a type or memory of no use");
  }
  std::vector<float> x(kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 97) / 48 - 1;
  compute.kernels().quantize_q8(x.data(), kColumns, row_.data(), 1);
}

std::vector<TileGeometry> TileProbe::Geometries(int64_t tokens) const {
  return kernels::TileGeometries(compute_.kernels().tile_unit, tokens);
}

TileGeometry TileProbe::Solved(int64_t tokens) const {
  return kernels::SolveTiles(compute_.kernels().tile_unit, tokens, kernels::BestSideBySide());
}

// Block b of all tokens of a panel, then block b + 1.
void TileProbe::LayOut(int64_t tokens, int64_t panel_tokens) {
  kernels::BlockQ8* to = panels_.data();
  for (int64_t t = 0; t < tokens; t += panel_tokens) {
    const int64_t count = std::min(panel_tokens, tokens - t);
    for (const kernels::BlockQ8& block : row_) to = std::fill_n(to, count, block);
  }
}

double TileProbe::SecondsOf(int64_t tokens, const TileGeometry& geometry, double seconds) {
  LayOut(tokens, geometry.panel_tokens);
  std::vector<double> of_worker(place_.size());
  compute_.team().Run([&](int worker) {
    of_worker[static_cast<size_t>(worker)] = Multiply(worker, tokens, geometry, seconds);
  });
  double sum = 0, count = 0;
  for (const double of_one : of_worker) {
    sum += of_one;
    count += of_one > 0 ? 1 : 0;  // a thread may not get to run
  }
  return sum / count;
}

// Returns the seconds of a call.
double TileProbe::Multiply(int worker, int64_t tokens, const TileGeometry& geometry,
                           double seconds) {
  const TileLayout layout(dtype_, kColumns);
  const size_t piece = layout.matrix_bytes(kMatMulRowGrain);
  const size_t part = memory_.size() / place_.size() / kLineBytes * kLineBytes;
  const auto w = static_cast<size_t>(worker);
  kernels::TileMatMulArgs args{};
  args.tile_bytes = layout.tile_bytes();
  args.blocks = layout.blocks;
  args.x = panels_.data();
  args.tokens = tokens;
  args.out = out_.data() + static_cast<int64_t>(w) * kMostTokens * kOutStride;
  args.out_stride = kOutStride;
  args.rows = kMatMulRowGrain;
  args.tile_end = TileLayout::TilesFor(kMatMulRowGrain);
  args.geometry = geometry;
  const auto multiply = [&] {
    if (place_[w] + piece > part) place_[w] = 0;
    args.tiles = memory_.data() + w * part + place_[w];
    place_[w] += piece;
    compute_.kernels().matmul_tiles[static_cast<size_t>(dtype_)](args);
  };
  multiply();  // what the last geometry left in the caches is gone
  const double start = ThreadSeconds();
  int64_t calls = 0;
  double elapsed = 0;
  do {
    multiply();
    ++calls;
    elapsed = ThreadSeconds() - start;
  } while (elapsed < seconds);
  return elapsed / static_cast<double>(calls);
}

double QuietSeconds(std::vector<double> seconds) {
  if (seconds.empty()) return 0;
  const auto quarter = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 4);
  std::nth_element(seconds.begin(), quarter, seconds.end());
  return *quarter;
}

TileGeometry FastestTiles(std::span<const TileGeometry> geometries,
                          std::span<const std::vector<double>> seconds,
                          const TileGeometry& solved) {
  TileGeometry fastest = solved;
  double least = 0, of_solved = 0;
  for (size_t i = 0; i < geometries.size(); ++i) {
    const double quiet = QuietSeconds(seconds[i]);
    if (geometries[i] == solved) of_solved = quiet;
    if (least == 0 || quiet < least) {
      least = quiet;
      fastest = geometries[i];
    }
  }
  return of_solved > 0 && of_solved <= kToldApart * least ? solved : fastest;
}

}  // namespace hearth
