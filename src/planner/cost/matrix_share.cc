#include "planner/cost/matrix_share.h"

#include <algorithm>
#include <numeric>

namespace hearth {

AccessRecord BesideMatrices(const AccessRecord& record, const MatrixPlacement& placement) {
  const AccessSequence& lists = record.lists;
  AccessRecord beside = {.lists = {},
                         .guesses = {},
                         .tokens = record.tokens,
                         .tokens_hash = record.tokens_hash,
                         .activity = record.activity};
  beside.lists.unit = lists.unit;
  beside.lists.model_name = lists.model_name;
  beside.lists.num_layers = lists.num_layers;
  beside.lists.num_experts = lists.num_experts;
  beside.lists.num_neurons = lists.num_neurons;
  for (int64_t i = 0; i < lists.num_batches(); ++i) {
    for (const int32_t key : lists.batch(i)) {
      const auto layer = static_cast<size_t>(key / lists.num_experts);
      const auto expert = static_cast<int32_t>(key % lists.num_experts);
      if (!placement.layers[layer].HasExpert(expert)) beside.lists.Append(key);
    }
    beside.lists.EndBatch();
    if (lists.ends_pass(i)) beside.lists.EndPass();
  }
  return beside;
}

// The processor's own FFNs take as long in every layer as it computes experts there.
void AddMatrices(const MatrixShare& share, TokenCost& cost) {
  const std::vector<double>& here = share.experts_here;
  const double all_here = std::accumulate(here.begin(), here.end(), 0.0);
  const double ffn_ms = cost.time.token_ms - cost.time.attention_ms - cost.time.predictor_ms;
  double wait_ms = 1000 * share.dense_seconds;
  double device_ms = wait_ms;
  for (size_t l = 0; l < here.size(); ++l) {
    const double there = 1000 * share.ffn_seconds[l];
    device_ms += there;
    wait_ms += std::max(0.0, there - (all_here > 0 ? ffn_ms * here[l] / all_here : 0));
  }
  cost.time.device_ms += device_ms;
  cost.device_wait_ms += wait_ms;
  cost.time.token_ms += wait_ms;
}

}  // namespace hearth
