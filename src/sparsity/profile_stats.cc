#include "sparsity/profile_stats.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace hearth {
namespace {

// The FFNs of one layer, or of all.
std::span<const FfnProfile> FfnsOf(const ModelProfile& profile, int64_t layer) {
  const std::span<const FfnProfile> all = profile.ffns;
  if (layer < 0) return all;
  const auto count = static_cast<size_t>(profile.ffns_per_layer());
  return all.subspan(static_cast<size_t>(layer) * count, count);
}

std::vector<double> HeaviestFirst(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return sorted;
}

double SumOf(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// How many of `sorted`, heaviest first, it takes to reach `share` of their sum.
size_t CountCarrying(std::span<const double> sorted, double share) {
  const double wanted = share * SumOf(sorted);
  double sum = 0;
  size_t count = 0;
  while (count < sorted.size() && sorted[count] > 0 && sum < wanted) sum += sorted[count++];
  return count;
}

std::vector<double> RatesOf(const ModelProfile& profile, int64_t layer,
                            std::vector<uint64_t> FfnProfile::*counts) {
  std::vector<double> rates;
  for (const FfnProfile& ffn : FfnsOf(profile, layer)) {
    const auto tokens = static_cast<double>(std::max<uint64_t>(ffn.tokens, 1));
    for (const uint64_t count : ffn.*counts) rates.push_back(static_cast<double>(count) / tokens);
  }
  return rates;
}

// Active per firing gate, over the neurons that are not `hot`.
double CoActiveShare(std::span<const FfnProfile> ffns, const std::vector<bool>& hot) {
  double fired = 0, active = 0;
  size_t neuron = 0;
  for (const FfnProfile& ffn : ffns) {
    for (size_t j = 0; j < ffn.active.size(); ++j, ++neuron) {
      if (hot[neuron]) continue;
      fired += static_cast<double>(ffn.gate_fired[j]);
      active += static_cast<double>(ffn.active[j]);
    }
  }
  return fired > 0 ? active / fired : 0;
}

}  // namespace

std::vector<double> NeuronWeights(const ModelProfile& profile, int64_t layer, NeuronWeight kind) {
  std::vector<double> weights;
  for (const FfnProfile& ffn : FfnsOf(profile, layer)) {
    for (size_t j = 0; j < ffn.active.size(); ++j) {
      weights.push_back(kind == NeuronWeight::kActivations ? static_cast<double>(ffn.active[j])
                                                           : ffn.OutputMass(j));
    }
  }
  return weights;
}

std::vector<int64_t> SmallestCarryingSet(std::span<const double> weights, double share) {
  std::vector<int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return weights[static_cast<size_t>(a)] > weights[static_cast<size_t>(b)];
  });
  order.resize(CountCarrying(HeaviestFirst(weights), share));
  return order;
}

double CarryingShare(std::span<const double> weights, double share) {
  if (weights.empty()) return 0;
  return static_cast<double>(CountCarrying(HeaviestFirst(weights), share)) /
         static_cast<double>(weights.size());
}

std::vector<double> CumulativeShares(std::span<const double> weights, int points) {
  std::vector<double> shares(static_cast<size_t>(points) + 1);
  const std::vector<double> sorted = HeaviestFirst(weights);
  const double total = SumOf(sorted);
  if (!(total > 0)) return shares;
  double sum = 0;
  size_t done = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double position = static_cast<double>(sorted.size()) * static_cast<double>(i) / points;
    const auto whole = std::min(sorted.size(), static_cast<size_t>(position));
    for (; done < whole; ++done) sum += sorted[done];
    const double part =
        whole < sorted.size() ? (position - static_cast<double>(whole)) * sorted[whole] : 0;
    shares[i] = std::min(1.0, (sum + part) / total);
  }
  return shares;
}

std::vector<double> SortedBins(std::span<const double> values, int bins) {
  std::vector<double> means;
  const std::vector<double> sorted = HeaviestFirst(values);
  const auto count = static_cast<size_t>(bins);
  for (size_t i = 0; i < count && !sorted.empty(); ++i) {
    const size_t begin = i * sorted.size() / count;
    const size_t end = std::max(begin + 1, (i + 1) * sorted.size() / count);
    means.push_back(SumOf(std::span(sorted).subspan(begin, end - begin)) /
                    static_cast<double>(end - begin));
  }
  return means;
}

ActivationSummary Summarize(const ModelProfile& profile, int64_t layer) {
  ActivationSummary summary;
  double pairs = 0, fired = 0, active = 0;
  for (const FfnProfile& ffn : FfnsOf(profile, layer)) {
    summary.neurons += static_cast<int64_t>(ffn.active.size());
    summary.unused_experts += ffn.tokens == 0 ? 1 : 0;
    summary.never_active += std::count(ffn.active.begin(), ffn.active.end(), uint64_t{0});
    pairs += static_cast<double>(ffn.tokens) * static_cast<double>(ffn.active.size());
    for (const uint64_t count : ffn.gate_fired) fired += static_cast<double>(count);
    for (const uint64_t count : ffn.active) active += static_cast<double>(count);
  }
  if (pairs > 0) {
    summary.gate_rate = fired / pairs;
    summary.active_rate = active / pairs;
  }
  const std::vector<double> activations = NeuronWeights(profile, layer, NeuronWeight::kActivations);
  summary.hot_activations = CarryingShare(activations, kHotShare);
  if (profile.goes_sparse()) {
    std::vector<bool> hot(activations.size());
    summary.co_active = CoActiveShare(FfnsOf(profile, layer), hot);
    for (const int64_t neuron : SmallestCarryingSet(activations, kHotShare)) {
      hot[static_cast<size_t>(neuron)] = true;
    }
    summary.co_active_cold = CoActiveShare(FfnsOf(profile, layer), hot);
  }
  summary.hot_output =
      CarryingShare(NeuronWeights(profile, layer, NeuronWeight::kOutput), kHotShare);
  return summary;
}

std::vector<double> ActiveRates(const ModelProfile& profile, int64_t layer) {
  return RatesOf(profile, layer, &FfnProfile::active);
}

std::vector<double> GateRates(const ModelProfile& profile, int64_t layer) {
  return RatesOf(profile, layer, &FfnProfile::gate_fired);
}

}  // namespace hearth
