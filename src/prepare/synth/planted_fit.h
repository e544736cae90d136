// The shares with which planted neurons, or routers, show the figures of a recorded trace
// (docs/synth.md). What a planted model would do over its topic walk is drawn here without making
// the model; shares are sought until the draws show the figures.
#pragma once

#include <cstdint>

#include "prepare/shapes/shapes.h"
#include "sparsity/access_figures.h"

namespace hearth {

struct FitRequest {
  AccessFigures wanted;  // `active` of neurons is what is planted; of experts it follows the shape
  double gate = 0;       // mean P(gate fires); neurons only
  int64_t tokens = 0;    // that the figures are of; more than kMostFitTokens count as so many
};
inline constexpr int64_t kMostFitTokens = 1536;

struct PlantedFit {
  // Neurons: share that 80% of P(active) belongs to. Experts: how much likelier some are for all
  // tokens alike (PlantedShares::router_bias).
  double skew = 0;
  double topic_share = 0;
  AccessFigures reached;  // by the draws: nearest to what was wanted
};

// Both take about a second and give the same for the same arguments.
PlantedFit FitNeurons(const ModelShape& shape, const FitRequest& request);
PlantedFit FitRouter(const ModelShape& shape, const FitRequest& request);

}  // namespace hearth
