// What a profile says of a model: rates, and the smallest sets of neurons that carry a share of
// the activations or of the output (P1 §3, Figures 4 and 5).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparsity/profile.h"

namespace hearth {

// What a neuron is worth.
enum class NeuronWeight : uint8_t {
  kActivations,  // tokens it was active for
  kOutput,       // what it carried of the output: FfnProfile::OutputMass
};

// Weights of the neurons of one layer, expert by expert; of all layers where layer is negative.
std::vector<double> NeuronWeights(const ModelProfile& profile, int64_t layer, NeuronWeight kind);

// The smallest set of entries whose weights sum to at least `share` (0 to 1) of all, the heaviest
// first; of equal ones the lower index first. Weights are finite and not negative. Entries of
// weight 0 are never part of it. Sums are taken in that order, in double.
std::vector<int64_t> SmallestCarryingSet(std::span<const double> weights, double share);

// The size of that set as a share of all entries; 0 where nothing weighs anything.
double CarryingShare(std::span<const double> weights, double share);

// The share of all weight that the heaviest i * n / points of n entries carry, for i = 0 to
// `points` (P1 Figure 4); entries between two are interpolated. All 0 where nothing weighs
// anything.
std::vector<double> CumulativeShares(std::span<const double> weights, int points);

// Of the heaviest entries first: means over `bins` equal parts (P1 Figure 5a). Where a part is
// less than one entry, the entry that it lies in.
std::vector<double> SortedBins(std::span<const double> values, int bins);

// What a report says of a layer, or of the whole model. Rates are shares of (token, neuron) pairs
// that were computed: of experts, only for the tokens that were routed to them.
struct ActivationSummary {
  int64_t neurons = 0;
  double gate_rate = 0;        // P(gate fires)
  double active_rate = 0;      // P(active)
  double hot_activations = 0;  // share of neurons that carry 80% of the activations
  double hot_output = 0;       // share of neurons that carry 80% of the output
  // Of the gates that fire, how many belong to active neurons: to those whose up and down are
  // needed too (P2 §4.3). `co_active_cold`: without the neurons that carry 80% of the activations.
  double co_active = 0;
  double co_active_cold = 0;
  int64_t never_active = 0;    // neurons
  int64_t unused_experts = 0;  // to which no token was routed
};
inline constexpr double kHotShare = 0.8;  // as P1 has it

ActivationSummary Summarize(const ModelProfile& profile, int64_t layer);  // negative: all layers

// Share of tokens for which each neuron of a layer was active, or its gate fired, expert by expert;
// 0 where an expert saw no token.
std::vector<double> ActiveRates(const ModelProfile& profile, int64_t layer);
std::vector<double> GateRates(const ModelProfile& profile, int64_t layer);

}  // namespace hearth
