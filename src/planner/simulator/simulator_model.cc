#include "planner/simulator/simulator_model.h"

#include <algorithm>

#include "base/rounding.h"
#include "format/bundle_layout.h"

namespace hearth {
namespace {

// TurboSparse-Mixtral-47B's predictors take 2.6 GB (P2 §7.2.3): in 4 bits this share of its
// FFNs' weights. Free: that other models' predictors are as large, and 4-bit.
constexpr double kSimPredictorShare = 0.1025;
constexpr uint64_t kSimRuntimeBytes = 300'000'000;  // P2 §7.2.3
constexpr int64_t kFlashBlock = 4096;               // P2 §4.3: the smallest read

// Neurons as P2 §4.3 and §7.2.3 have them: codes in blocks of flash, scales in memory.
void SetPaperBundles(const ModelShape& shape, SimModel& model) {
  const auto weights = static_cast<uint64_t>(shape.hidden_size * model.matrices) *
                       static_cast<uint64_t>(model.num_neurons());
  model.scale_bytes = weights * 2 / 32;
  model.slot_bytes =
      static_cast<uint64_t>(DivideUp<int64_t>(model.matrices * shape.hidden_size, 2));
  model.bundle_bytes =
      static_cast<uint64_t>(RoundUp(static_cast<int64_t>(model.slot_bytes), kFlashBlock));
  const int64_t gate = RoundUp(DivideUp<int64_t>(shape.hidden_size, 2), kFlashBlock);
  // A neuron of one block is read at once.
  model.gate_read_bytes = std::min(static_cast<uint64_t>(gate), model.bundle_bytes);
}

// As `pack` writes them in Q4_0.
void SetPackedBundles(const ModelShape& shape, SimModel& model) {
  const BundleLayout layout =
      MakeBundleLayout(DType::kQ4_0, RoundUp(shape.hidden_size, int64_t{32}),
                       {.is_gated = shape.gated_ffn, .has_bias = !shape.gated_ffn});
  model.slot_bytes = model.bundle_bytes = layout.stride;
  model.gate_read_bytes = layout.split;
}

}  // namespace

const char* SimSystemName(SimSystem system) {
  return system == SimSystem::kHearth ? "hearth" : "powerinfer-2";
}

SimModel SimModelOf(const ModelShape& shape, SimSystem system) {
  SimModel model;
  model.name = shape.name;
  model.num_layers = shape.num_layers;
  model.num_experts = std::max<int64_t>(1, shape.num_experts);
  model.experts_per_token = std::max<int64_t>(1, shape.num_experts_per_token);
  model.neurons = shape.intermediate_size;
  model.hidden_size = shape.hidden_size;
  model.matrices = shape.gated_ffn ? 3 : 2;
  const auto hidden = static_cast<double>(shape.hidden_size);
  const auto heads = static_cast<double>(shape.num_heads * shape.head_dim);
  const auto kv = static_cast<double>(shape.num_kv_heads * shape.head_dim);
  model.attention_macs = hidden * (2 * heads + 2 * kv);
  model.output_macs = hidden * static_cast<double>(shape.vocab_size);
  const double ffn_weights = hidden * static_cast<double>(shape.intermediate_size * model.matrices);
  model.predictor_macs = kSimPredictorShare * ffn_weights;
  const auto ffns = static_cast<double>(model.num_ffns());
  const double embeddings = (shape.tied_embeddings ? 1 : 2) * model.output_macs;
  model.dense_bytes = static_cast<uint64_t>(
      kSimWeightBytes *
      (static_cast<double>(shape.num_layers) * model.attention_macs + embeddings));
  model.predictor_bytes = static_cast<uint64_t>(kSimWeightBytes * ffns * model.predictor_macs);
  model.runtime_bytes = kSimRuntimeBytes;
  (system == SimSystem::kHearth ? SetPackedBundles : SetPaperBundles)(shape, model);
  model.neuron_bytes = static_cast<uint64_t>(
      kSimWeightBytes * static_cast<double>(model.matrices * shape.hidden_size));
  return model;
}

}  // namespace hearth
