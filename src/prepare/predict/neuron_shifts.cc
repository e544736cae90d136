#include "prepare/predict/neuron_shifts.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "prepare/predict/predictor_trial.h"

namespace hearth {
namespace {

// A token that lists a neuron costs this share of the mean active mass for each part of recall that
// may be given up: at 0.99, a twentieth. Measured on the embedded model.
constexpr double kPricePerLoss = 5;
// Active tokens at which a neuron's own score and that of all neurons count the same.
constexpr double kTrustTokens = 32;

using ScoredMass = std::pair<float, float>;

// Where the sum of gains over a neuron's tokens, highest score first, is largest.
float BestScore(std::vector<ScoredMass>& tokens, double price) {
  std::sort(tokens.begin(), tokens.end(), std::greater<>());
  double sum = 0, best = 0;
  float score = tokens.front().first;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += static_cast<double>(tokens[i].second) - price;
    if (sum <= best) continue;
    best = sum;
    // Between this token and the next, so that neither is on the edge.
    score = i + 1 < tokens.size() ? (tokens[i].first + tokens[i + 1].first) / 2 : tokens[i].first;
  }
  return score;
}

}  // namespace

std::vector<float> ListingScores(WorkerTeam& team, const FloatMatrix& scores,
                                 const FloatMatrix& mass, double recall) {
  const float common = ThresholdFor(scores, mass, recall);
  const double price = kPricePerLoss * (1 - recall) * MeanActiveMass(mass).value_or(0);
  const auto tokens = static_cast<size_t>(scores.rows());
  std::vector<float> out(static_cast<size_t>(scores.cols()), common);
  team.ParallelFor(scores.cols(), 16, [&](int64_t begin, int64_t end, int) {
    std::vector<ScoredMass> of_neuron(tokens);
    for (int64_t n = begin; n < end; ++n) {
      uint64_t active = 0;
      for (size_t t = 0; t < tokens; ++t) {
        of_neuron[t] = {scores.row(static_cast<int64_t>(t))[n],
                        mass.row(static_cast<int64_t>(t))[n]};
        active += of_neuron[t].second != 0 ? 1 : 0;
      }
      if (active == 0) continue;
      const double trust =
          static_cast<double>(active) / (static_cast<double>(active) + kTrustTokens);
      const double own = static_cast<double>(BestScore(of_neuron, price));
      out[static_cast<size_t>(n)] =
          static_cast<float>(trust * own + (1 - trust) * static_cast<double>(common));
    }
  });
  return out;
}

}  // namespace hearth
