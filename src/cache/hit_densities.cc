#include "cache/hit_densities.h"

#include <algorithm>
#include <numeric>

namespace hearth::cache {
namespace {

// Turns of one entry that a prior is worth.
constexpr double kPriorTurns = 50;
// Cells that were offered less keep all they know.
constexpr double kLeastTurns = 4 * kPriorTurns;
constexpr int kTokensPerSort = 4;
constexpr double kKept = 0.95;  // each time

}  // namespace

HitDensities::HitDensities(std::span<const double> priors) : order_(priors.size()) {
  for (const double prior : priors) cells_.push_back({kPriorTurns * prior, kPriorTurns});
  std::iota(order_.begin(), order_.end(), int16_t{0});
  Sort();
}

void HitDensities::EndToken() noexcept {
  if (++tokens_ < kTokensPerSort) return;
  tokens_ = 0;
  Sort();
  for (Cell& cell : cells_) {
    if (cell.offered < kLeastTurns) continue;
    cell.hits *= kKept;
    cell.offered *= kKept;
  }
}

void HitDensities::Sort() noexcept {
  std::sort(order_.begin(), order_.end(), [this](int16_t a, int16_t b) {
    const double of_a = density(a), of_b = density(b);
    return of_a != of_b ? of_a < of_b : a < b;
  });
}

}  // namespace hearth::cache
