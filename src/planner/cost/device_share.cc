#include "planner/cost/device_share.h"

#include <algorithm>
#include <numeric>

namespace hearth {
namespace {

// Hands each access of a packed model to visit(layer, expert, neuron).
template <typename Visit>
void ForEachAccess(const AccessSequence& lists, int64_t batch, Visit&& visit) {
  for (const int32_t key : lists.batch(batch)) {
    const int64_t ffn = key / lists.num_neurons;
    visit(ffn / lists.num_experts, ffn % lists.num_experts, key % lists.num_neurons);
  }
}

AccessSequence ListsBeside(const AccessSequence& lists, std::span<const int64_t> layer_neurons) {
  AccessSequence beside;
  beside.unit = lists.unit;
  beside.model_name = lists.model_name;
  beside.num_layers = lists.num_layers;
  beside.num_experts = lists.num_experts;
  beside.num_neurons = std::max<int64_t>(
      lists.num_neurons - *std::min_element(layer_neurons.begin(), layer_neurons.end()), 1);
  for (int64_t i = 0; i < lists.num_batches(); ++i) {
    ForEachAccess(lists, i, [&](int64_t layer, int64_t expert, int64_t neuron) {
      const int64_t rest = neuron - layer_neurons[static_cast<size_t>(layer)];
      const int64_t ffn = layer * lists.num_experts + expert;
      if (rest >= 0) beside.Append(static_cast<int32_t>(ffn * beside.num_neurons + rest));
    });
    beside.EndBatch();
    if (lists.ends_pass(i)) beside.EndPass();
  }
  return beside;
}

double Sum(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

}  // namespace

DeviceLoad LoadOf(const AccessRecord& record, std::span<const int64_t> layer_neurons) {
  DeviceLoad load;
  load.there.resize(layer_neurons.size());
  load.here.resize(layer_neurons.size());
  const double each = 1 / static_cast<double>(std::max<int64_t>(record.tokens, 1));
  for (int64_t i = 0; i < record.lists.num_batches(); ++i) {
    ForEachAccess(record.lists, i, [&](int64_t layer, int64_t /*expert*/, int64_t neuron) {
      const auto at = static_cast<size_t>(layer);
      (neuron < layer_neurons[at] ? load.there : load.here)[at] += each;
    });
  }
  return load;
}

DeviceLoad FullLoad(int64_t neurons, int64_t experts_per_token,
                    std::span<const int64_t> layer_neurons) {
  DeviceLoad load;
  for (const int64_t there : layer_neurons) {
    load.there.push_back(static_cast<double>(experts_per_token * there));
    load.here.push_back(static_cast<double>(experts_per_token * (neurons - there)));
  }
  return load;
}

AccessRecord BesideDevice(const AccessRecord& record, FfnMode mode,
                          std::span<const int64_t> layer_neurons) {
  AccessRecord beside = {.lists = ListsBeside(record.lists, layer_neurons),
                         .guesses = {},
                         .tokens = record.tokens,
                         .tokens_hash = record.tokens_hash,
                         .activity = record.activity};
  if (record.guesses) beside.guesses = ListsBeside(*record.guesses, layer_neurons);
  const DeviceLoad load = LoadOf(record, layer_neurons);
  const double asked = Sum(load.here) + Sum(load.there);
  const double share = asked > 0 ? Sum(load.here) / asked : 0;
  beside.activity.up *= share;
  beside.activity.down *= share;
  // In `gated` every gate is multiplied.
  const double there = std::accumulate(layer_neurons.begin(), layer_neurons.end(), 0.0);
  const auto all = static_cast<double>(record.lists.num_layers * record.lists.num_neurons);
  beside.activity.gate *= mode == FfnMode::kPredicted ? share : (all - there) / all;
  return beside;
}

void AddDevice(const DeviceShare& share, const DeviceLoad& load, FfnMode mode, TokenCost& cost) {
  const double neuron_seconds = static_cast<double>(share.neuron_bytes) / share.bytes_per_s;
  const double all_here = Sum(load.here);
  const double ffn_ms = cost.time.token_ms - cost.time.attention_ms - cost.time.predictor_ms;
  for (size_t l = 0; l < load.there.size(); ++l) {
    const auto there =
        static_cast<double>(share.experts_per_token * share.planned.layer_neurons[l]);
    if (there == 0) continue;
    const double silent = mode == FfnMode::kGated ? there - load.there[l] : 0;
    const double device_ms =
        1000 * (share.sync_seconds + (load.there[l] + silent * share.gate_share) * neuron_seconds);
    const double here_ms = all_here > 0 ? ffn_ms * load.here[l] / all_here : 0;
    cost.time.device_ms += device_ms;
    cost.device_wait_ms += std::max(0.0, device_ms - here_ms);
  }
  cost.time.device_ms += 1000 * share.dense_seconds;
  cost.device_wait_ms += 1000 * share.dense_seconds;
  cost.time.token_ms += cost.device_wait_ms;
}

double PromptSecondsOnDevice(const DeviceShare& share) {
  double seconds = 0;
  for (const int64_t there : share.planned.layer_neurons) {
    seconds += static_cast<double>(share.experts_per_token * there) *
               static_cast<double>(share.neuron_bytes);
  }
  return seconds / share.bytes_per_s;
}

}  // namespace hearth
