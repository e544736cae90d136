// What `hearth synth` is asked of the sparsity that it plants (docs/synth.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "prepare/shapes/shapes.h"

namespace hearth {

// How slowly the active set moves: how much of what tells tokens apart is their topic's.
enum class Locality : uint8_t { kHigh, kMedium, kLow };
const char* LocalityName(Locality locality);  // "high", "medium", "low"
std::optional<Locality> LocalityFromName(std::string_view name);

struct PlantedOptions {
  std::optional<double> active;  // mean P(active) of a layer's neurons; nothing: 0.1
  std::optional<double> gate;    // mean P(gate fires); nothing: 2 * active for drelu, else `active`
  // Share of the neurons that 80% of activations belong to; nothing: 0.28, or the least that such a
  // high `active` allows.
  std::optional<double> skew;
  Locality locality = Locality::kMedium;
  std::optional<int64_t> rank;  // directions per layer; nothing: 256, less for narrow models
};

// Neurons can be planted where the activation leaves zeros, routers where there are experts to
// choose among.
inline bool PlantsNeurons(const ModelShape& shape) {
  return shape.activation != FfnActivation::kSilu;
}
inline bool PlantsRouter(const ModelShape& shape) { return shape.num_experts > 1; }
inline bool CanPlant(const ModelShape& shape) {
  return PlantsNeurons(shape) || PlantsRouter(shape);
}

// The options with everything decided. Throws Error(kInvalidArgument), naming the flag, for values
// that cannot be planted in the shape.
struct PlantedShares {
  double active = 0;
  double gate = 0;
  double skew = 0;
  int64_t rank = 0;  // 0: neurons are not planted
  // Of the variance among tokens that neurons see, and that routers see.
  double topic_share = 0;
  double router_topic_share = 0;
};
PlantedShares DecideShares(const ModelShape& shape, const PlantedOptions& options);

// No neuron fires more often.
inline constexpr double kMaxRate = 0.98;

// n rates in descending order: a power law of the rank, cut off at kMaxRate, with this mean, whose
// first skew * n entries sum to 80% of all. n >= 1; mean and skew go together as SkewRangeOf says.
std::vector<double> PowerLawRates(int64_t n, double mean, double skew);

// The least and the greatest skew of rates with this mean.
struct SkewRange {
  double least;
  double greatest;
};
SkewRange SkewRangeOf(double mean);

}  // namespace hearth
