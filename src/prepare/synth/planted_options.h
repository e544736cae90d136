// What `hearth synth` is asked of the sparsity that it plants (docs/synth.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "prepare/shapes/shapes.h"
#include "sparsity/access_figures.h"

namespace hearth {

// How slowly the active set moves: how much of what tells tokens apart is their topic's. kMeasured:
// as in the embedded model (kMeasuredFigures).
enum class Locality : uint8_t { kHigh, kMedium, kLow, kMeasured };
const char* LocalityName(Locality locality);  // "high", "medium", "low", "measured"
std::optional<Locality> LocalityFromName(std::string_view name);

// Of models/hearth-stories-5m.gguf over models/hearth-stories.txt.
inline constexpr AccessFigures kMeasuredFigures = {
    .active = 0.079, .hot_share = 0.64, .found = 0.67};

// What a trace shows, to be planted.
struct RecordedFigures {
  AccessUnit unit = AccessUnit::kNeurons;
  AccessFigures figures;
  int64_t tokens = 0;
};
// Throws as FiguresOf does, and Error(kUnsupported) for a trace of neurons in experts.
RecordedFigures RecordedFrom(const AccessSequence& sequence);

struct PlantedOptions {
  std::optional<double> active;  // mean P(active) of a layer's neurons; nothing: 0.1
  std::optional<double> gate;    // mean P(gate fires); nothing: 2 * active for drelu, else `active`
  // Share of the neurons that 80% of activations belong to; nothing: 0.28, or the least that such a
  // high `active` allows; with kMeasured that of kMeasuredFigures.
  std::optional<double> skew;
  std::optional<Locality> locality;     // nothing: kMedium
  std::optional<RecordedFigures> like;  // instead of active, skew and locality
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
  // The part of a router's logits that an expert has for all tokens alike, where the part that
  // tokens differ in is 1: some experts are chosen often (planted_router_test.cc).
  double router_bias = 0.82;
  // Where figures were asked for: what the planted model will show, by a draw of it.
  std::optional<AccessFigures> reached;
};
PlantedShares DecideShares(const ModelShape& shape, const PlantedOptions& options);

// No neuron fires more often.
inline constexpr double kMaxRate = 0.98;

// n rates in descending order: a power law of the rank, cut off at kMaxRate, with this mean, whose
// first skew * n entries sum to 80% of all. n >= 1; mean and skew go together as SkewRangeOf says.
std::vector<double> PowerLawRates(int64_t n, double mean, double skew);
// P(gate fires) of the neurons whose P(active) is `active`, at least that and with this mean.
std::vector<double> PlantedGateRates(const std::vector<double>& active, double mean, double skew);

// The least and the greatest skew of rates with this mean.
struct SkewRange {
  double least;
  double greatest;
};
SkewRange SkewRangeOf(double mean);

}  // namespace hearth
