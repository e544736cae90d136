#include "kernels/solver/tile_solver.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels {
namespace {

constexpr int64_t kBlockColumns = TileLayout::kBlockColumns;
// Panels of the scalar kernels, which need none: not a step of others, so that tests see a mix-up.
constexpr int64_t kScalarPanelTokens = 7;
// Larger products are chosen for as this many tokens are: a long prompt's pass.
constexpr int64_t kManyTokens = 256;

// Costs in vector instructions. Processors do two or three loads at a time and half to one store.
constexpr double kStoreAccesses = 3;
// Masks and shifts run in twice as many units as multiplications.
constexpr double kLogicInstructions = 0.5;
// Of two 4-bit codes that share a byte: two masks and a shift.
constexpr double kLogicOfTwoQuads = 3 * kLogicInstructions;
// Conversion, scale, and multiply-add of a sum of a block.
constexpr double kFloatInstructions = 3;
// Accesses and arithmetic run beside each other, but for a sixteenth.
constexpr double kNotOverlapped = 1.0 / 16;
// Besides sums and weights: an activation, a product on its way, a constant.
constexpr int64_t kOtherRegisters = 3;

// Products of one panel's step of n tokens.
class StepCost {
 public:
  StepCost(const TileUnit& unit, int64_t tokens, const TileGeometry& geometry)
      : unit_(unit), geometry_(geometry) {
    // Where matrices are multiplied, an odd token takes the place of two.
    const int64_t paired = (tokens + unit.tokens - 1) / unit.tokens * unit.tokens;
    const int64_t passes = TileLayout::kRows / unit.rows;
    sums_ = paired * geometry.tiles * unit.rows / unit.lanes;
    weights_ = std::max<int64_t>(geometry.tiles * unit.rows / unit.lanes, 1);
    tokens_ = paired;
    passes_ = passes;
  }

  bool Fits() const { return sums_ + weights_ + kOtherRegisters <= unit_.registers; }

  // Of all the tiles at once.
  double Instructions() const {
    const double arithmetic = Arithmetic(), accesses = Accesses();
    return static_cast<double>(passes_) *
           (std::max(arithmetic, accesses) + kNotOverlapped * std::min(arithmetic, accesses));
  }

 private:
  double Quads() const { return static_cast<double>(kBlockColumns / unit_.columns); }
  double Sums() const { return static_cast<double>(sums_); }
  double Arithmetic() const {
    const double dots = Quads() * static_cast<double>(unit_.instructions_of_dot);
    // Two quads share each vector that is loaded.
    const double unpacked = geometry_.unpacks ? 0 : Quads() / 2 * kLogicOfTwoQuads;
    // Where a dot takes several instructions, sums of pairs are widened besides.
    const double widened = unit_.instructions_of_dot > 1 ? 2 : 0;
    return Sums() * (dots + kFloatInstructions + widened) +
           static_cast<double>(weights_) * unpacked;
  }
  double Accesses() const {
    const double codes = geometry_.unpacks ? Quads() : Quads() / 2;
    const double activations = Quads() + 2;  // and a token's scale and sum
    const int64_t floats_in_registers = unit_.registers - kOtherRegisters - weights_ - sums_;
    const int64_t waiting = std::max<int64_t>(sums_ - std::max<int64_t>(floats_in_registers, 0), 0);
    double accesses = static_cast<double>(weights_) * (codes + 1) +
                      static_cast<double>(tokens_) * activations +
                      static_cast<double>(waiting) * (1 + kStoreAccesses);
    // Float sums pause in memory between chunks.
    if (geometry_.unpacks) {
      accesses += Sums() * (1 + kStoreAccesses) / static_cast<double>(kBlocksOfChunk);
    }
    return accesses;
  }

  const TileUnit& unit_;
  const TileGeometry& geometry_;
  int64_t sums_;     // vectors of integers
  int64_t weights_;  // vectors of a quad of all rows
  int64_t tokens_;
  int64_t passes_;  // over a tile's rows
};

// Unpacks a block of a tile: nothing of it overlaps, every store waits for what it stores.
double UnpackCost(const TileUnit& unit) {
  const double quads = static_cast<double>(kBlockColumns / 4);
  const double vectors = static_cast<double>(TileLayout::kRows) / static_cast<double>(unit.lanes);
  const double loads = quads / 2 + 1, stores = quads + 1;
  return vectors * (loads + kStoreAccesses * stores + quads / 2 * kLogicOfTwoQuads);
}

// Costs that differ by less are equal.
constexpr double kSameCost = 1.001;

int64_t MostTokens(const TileUnit& unit, int64_t tiles, bool unpacks) {
  const int64_t most = unit.most_sums * unit.lanes / (unit.rows * tiles);
  return unpacks ? std::min<int64_t>(most, kTokensTimesChunk) : most;
}

void CheckMeasured(const TileUnit& unit, const TilesForTokens& choice) {
  const std::vector<TileGeometry> all = TileGeometries(unit, choice.tokens);
  if (std::find(all.begin(), all.end(), choice.geometry) != all.end()) return;
  throw Error(ErrorCode::kInvalidArgument, "tiles",
              "kernels have no such geometry for " + std::to_string(choice.tokens) + " tokens");
}

}  // namespace

MnnTiles SolveTable2(const MnnUnit& unit) {
  constexpr int64_t kLoadBytes = 16;
  MnnTiles best;
  double least = std::numeric_limits<double>::infinity();
  const int64_t step = std::max(kLoadBytes / unit.columns, unit.tokens_of_register);
  for (int64_t e = step; e / unit.tokens_of_register <= unit.registers; e += step) {
    for (int64_t h = unit.rows_of_register; h / unit.rows_of_register <= unit.registers; h *= 2) {
      const int64_t activations = e / unit.tokens_of_register, weights = h / unit.rows_of_register;
      if (activations + weights + e * h / unit.results_of_register > unit.registers) continue;
      // Equation 2 in vectors, per result and column of matrices with many columns.
      const double accesses =
          1 / static_cast<double>(activations) + 1 / static_cast<double>(weights);
      if (accesses < least || (accesses == least && e > best.tokens)) {
        least = accesses;
        best = {e, h, unit.columns};
      }
    }
  }
  return best;
}

std::vector<TileGeometry> TileGeometries(const TileUnit& unit, int64_t tokens) {
  if (unit.registers == 0) return {{.panel_tokens = tokens == 1 ? 1 : kScalarPanelTokens}};
  std::vector<TileGeometry> all;
  if (tokens == 1) {
    for (const int tiles : kTileSteps) all.push_back({.tiles = tiles});
    return all;
  }
  for (const bool unpacks : {false, true}) {
    if (!unpacks && !unit.multiplies_packed) continue;
    for (const int tiles : kTileSteps) {
      if (tiles > (unpacks ? unit.most_tiles : 1)) continue;
      for (const int panel : kTokenSteps) {
        if (panel == 1 || panel > tokens || panel > MostTokens(unit, tiles, unpacks)) continue;
        all.push_back({.panel_tokens = panel, .tiles = tiles, .unpacks = unpacks});
      }
    }
  }
  return all;
}

double TileCost(const TileUnit& unit, int64_t tokens, const TileGeometry& geometry) {
  if (!StepCost(unit, geometry.panel_tokens, geometry).Fits()) {
    return std::numeric_limits<double>::infinity();
  }
  double cost = 0;
  for (int64_t t = 0; t < tokens; t += geometry.panel_tokens) {
    const int64_t panel = std::min(geometry.panel_tokens, tokens - t);
    for (int64_t i = 0; i < panel;) {
      const int step = TokenStep(panel - i);
      cost += StepCost(unit, step, geometry).Instructions() / static_cast<double>(geometry.tiles);
      i += step;
    }
  }
  if (geometry.unpacks) {
    const int64_t at_once = kTokensOfChunk / geometry.panel_tokens * geometry.panel_tokens;
    cost += UnpackCost(unit) * static_cast<double>((tokens + at_once - 1) / at_once);
  }
  return cost;
}

TileGeometry SolveTiles(const TileUnit& unit, int64_t tokens, int64_t streams) {
  const std::vector<TileGeometry> all = TileGeometries(unit, tokens);
  if (tokens == 1) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const TileGeometry& g) { return g.tiles == streams; });
    return found == all.end() ? all.front() : *found;
  }
  if (unit.registers == 0) return all.front();
  double least = std::numeric_limits<double>::infinity();
  for (const TileGeometry& geometry : all)
    least = std::min(least, TileCost(unit, tokens, geometry));
  TileGeometry best;
  for (const TileGeometry& geometry : all) {
    const bool is_least = TileCost(unit, tokens, geometry) <= kSameCost * least;
    if (is_least && geometry.panel_tokens > best.panel_tokens) best = geometry;
  }
  return best;
}

TileChoice::TileChoice(const TileUnit& unit, int64_t streams,
                       std::span<const TilesForTokens> measured)
    : by_tokens_(1) {
  if (measured.empty()) {
    for (int64_t tokens = 1; tokens <= kTokensOfChunk; ++tokens) {
      by_tokens_.push_back(SolveTiles(unit, tokens, streams));
    }
    by_tokens_.push_back(SolveTiles(unit, kManyTokens, streams));
    return;
  }
  for (const TilesForTokens& choice : measured) {
    CheckMeasured(unit, choice);
    by_tokens_.resize(std::max(by_tokens_.size(), static_cast<size_t>(choice.tokens) + 1),
                      choice.geometry);
  }
}

}  // namespace hearth::kernels
