// How long products of weight tiles take with each geometry that kernels have: what checks the
// solver (kernels/solver/tile_solver.h), for `hearth doctor` and hearth_micro.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/compute.h"
#include "tensor/dtype.h"
#include "tensor/tile_geometry.h"

namespace hearth {

// One at a time on a Compute.
class TileProbe {
 public:
  // Multiplies pieces of `memory` (at least kLeastBytes for every thread; must outlive this) as
  // tiles of the type with kColumns columns. Their bytes must be numbers of that type.
  TileProbe(Compute& compute, std::span<const std::byte> memory, DType dtype);

  // What can be chosen for so many tokens, and what the solver chooses.
  std::vector<TileGeometry> Geometries(int64_t tokens) const;
  TileGeometry Solved(int64_t tokens) const;

  // Seconds of processor time that a product of kMatMulRowGrain rows takes on a thread, while all
  // threads compute such: about `seconds` of calls, at least two on each, the first of which does
  // not count. `tokens` is at most kMostTokens.
  double SecondsOf(int64_t tokens, const TileGeometry& geometry, double seconds);

  static constexpr int64_t kColumns = 4096;
  static constexpr int64_t kMostTokens = 256;
  static constexpr size_t kLeastBytes = size_t{1} << 20;

 private:
  void LayOut(int64_t tokens, int64_t panel_tokens);
  double Multiply(int worker, int64_t tokens, const TileGeometry& geometry, double seconds);

  Compute& compute_;
  std::span<const std::byte> memory_;
  DType dtype_;
  std::vector<kernels::BlockQ8> row_;     // a token's activations
  std::vector<kernels::BlockQ8> panels_;  // those of all tokens, which are alike
  std::vector<float> out_;                // of each thread
  std::vector<size_t> place_;             // where a thread has come to in its part of the memory
};

// Numbers of tokens that are measured one by one: every small one, which sequences that are decoded
// together have, and prompts'.
inline constexpr int64_t kMeasuredTokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 96, 256};

// The least disturbed of some measurements: the first quarter of them is faster. Empty: 0.
double QuietSeconds(std::vector<double> seconds);

// The fastest of some geometries by QuietSeconds, or the solver's where that takes no more than 2%
// longer, which a measurement does not tell apart. `seconds[i]` are of geometries[i].
TileGeometry FastestTiles(std::span<const TileGeometry> geometries,
                          std::span<const std::vector<double>> seconds, const TileGeometry& solved);

}  // namespace hearth
