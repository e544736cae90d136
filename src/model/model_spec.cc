#include "model/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

// Upper bounds that no published model comes near; they keep every later product in 63 bits.
constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden, intermediate, head counts
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxContext = int64_t{1} << 31;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxExperts = 1 << 16;

class Checker {
 public:
  explicit Checker(const std::string& file) : file_(file) {}

  void Range(const char* field, int64_t value, int64_t low, int64_t high) const {
    if (value < low || value > high) {
      throw Error(ErrorCode::kCorrupt, file_, field,
                  std::to_string(low) + " to " + std::to_string(high), std::to_string(value));
    }
  }
  void Positive(const char* field, double value) const {
    if (!(value > 0) || !std::isfinite(value)) {
      throw Error(ErrorCode::kCorrupt, file_, field, "a positive number", std::to_string(value));
    }
  }
  void NotNegative(const char* field, double value) const {
    if (value == 0) return;
    Positive(field, value);
  }
  void Share(const char* field, float value) const {
    if (value >= 0 && value <= 1) return;  // false for NaN
    throw Error(ErrorCode::kCorrupt, file_, field, "a number from 0 to 1",
                fmt::format("{}", value));
  }
  void Holds(bool condition, const char* what, const std::string& expected, int64_t found) const {
    if (!condition) {
      throw Error(ErrorCode::kCorrupt, file_, what, expected, std::to_string(found));
    }
  }

 private:
  const std::string& file_;
};

void CheckRope(const Checker& check, const RopeSpec& rope, int64_t head_dim) {
  check.Range("rope.dimension_count", rope.dims, 2, head_dim);
  check.Holds(rope.dims % 2 == 0, "rope.dimension_count", "an even number", rope.dims);
  check.Positive("rope.freq_base", rope.base);
  check.Positive("rope.scaling.factor", rope.factor);
  check.Positive("rope.scaling.attn_factor", rope.attention_factor);
  if (rope.scaling == RopeScalingKind::kLong) {
    check.Range("rope.scaling.original_context_length", rope.original_context, 1, kMaxContext);
  }
  if (rope.scaling == RopeScalingKind::kYarn) {
    check.Range("rope.scaling.original_context_length", rope.original_context, 1, kMaxContext);
    check.Positive("rope.scaling.yarn_beta_fast", rope.yarn_beta_fast);
    check.Positive("rope.scaling.yarn_beta_slow", rope.yarn_beta_slow);
  }
}

void CheckLayer(const Checker& check, const LayerSpec& layer) {
  const AttentionSpec& attention = layer.attention;
  check.Range("attention.head_count", attention.num_heads, 1, kMaxWidth);
  check.Range("attention.head_count_kv", attention.num_kv_heads, 1, attention.num_heads);
  check.Holds(attention.num_heads % attention.num_kv_heads == 0, "attention.head_count_kv",
              "a divisor of head_count " + std::to_string(attention.num_heads),
              attention.num_kv_heads);
  check.Range("attention.key_length", attention.head_dim, 1, kMaxHeadDim);
  check.Range("attention.sliding_window", attention.sliding_window, 0, kMaxContext);
  check.Positive("attention.scale", attention.query_scale);
  check.NotNegative("attention.temperature_scale", attention.temperature_scale);
  if (attention.temperature_scale > 0) {
    check.Range("rope.scaling.original_context_length", attention.temperature_period, 1,
                kMaxContext);
  }
  check.NotNegative("attn_logit_softcapping", attention.softcap);
  if (attention.rope) CheckRope(check, *attention.rope, attention.head_dim);
  check.Range("feed_forward_length", layer.ffn.intermediate_size, 1, kMaxWidth);
  check.Range("expert_count", layer.ffn.num_experts, 0, kMaxExperts);
  if (layer.ffn.num_experts > 0) {
    check.Range("expert_used_count", layer.ffn.num_experts_per_token, 1, layer.ffn.num_experts);
  }
  check.Holds(!layer.ffn.routes_before_attention || layer.ffn.num_experts > 0, "expert_count",
              "at least 1, for a router before attention", layer.ffn.num_experts);
  check.Range("expert_group_count", layer.ffn.num_expert_groups, 1,
              std::max<int64_t>(layer.ffn.num_experts, 1));
  check.Holds(layer.ffn.num_experts % layer.ffn.num_expert_groups == 0, "expert_group_count",
              "a divisor of expert_count " + std::to_string(layer.ffn.num_experts),
              layer.ffn.num_expert_groups);
  check.Range("expert_group_used_count", layer.ffn.num_groups_per_token, 1,
              layer.ffn.num_expert_groups);
  check.Holds(layer.ffn.num_experts == 0 || layer.ffn.num_experts / layer.ffn.num_expert_groups *
                                                    layer.ffn.num_groups_per_token >=
                                                layer.ffn.num_experts_per_token,
              "expert_used_count", "no more than the chosen groups have",
              layer.ffn.num_experts_per_token);
  check.Range("expert_shared_feed_forward_length", layer.ffn.shared_intermediate_size, 0,
              kMaxWidth);
  check.Share("attention.layer_norm_rms_epsilon", layer.norm_epsilon);
  check.Positive("residual_scale", layer.residual_scale);
}

// A page of the KV cache is as wide in every layer.
void CheckKvWidths(const Checker& check, const ModelSpec& spec) {
  const auto differ = [](const LayerSpec& a, const LayerSpec& b) {
    return a.attention.num_kv_heads != b.attention.num_kv_heads ||
           a.attention.head_dim != b.attention.head_dim;
  };
  const auto last_alike = std::adjacent_find(spec.layers.begin(), spec.layers.end(), differ);
  if (last_alike == spec.layers.end()) return;
  check.Holds(false, "attention.head_count_kv",
              fmt::format("as many and as long heads in all layers, {} of {}",
                          last_alike->attention.num_kv_heads, last_alike->attention.head_dim),
              std::next(last_alike)->attention.num_kv_heads);
}

}  // namespace

void ThresholdSilu(std::span<const float> thresholds, ModelSpec* spec) {
  const auto refuse = [](const char* what, const std::string& expected, const std::string& found) {
    throw Error(ErrorCode::kInvalidArgument, "thresholds of SiLU", what, expected, found);
  };
  if (thresholds.size() != spec->layers.size()) {
    refuse("number", std::to_string(spec->layers.size()), std::to_string(thresholds.size()));
  }
  for (size_t l = 0; l < thresholds.size(); ++l) {
    FfnSpec& ffn = spec->layers[l].ffn;
    if (ffn.activation != FfnActivation::kSilu) {
      refuse("activation", "silu", FfnActivationName(ffn.activation));
    }
    if (!(thresholds[l] >= 0) || !std::isfinite(thresholds[l])) {
      refuse("threshold", "a finite number from 0 on", std::to_string(thresholds[l]));
    }
    ffn.activation = FfnActivation::kThresholdedSilu;
    ffn.threshold = thresholds[l];
  }
}

void ValidateSpec(const ModelSpec& spec, const std::string& file) {
  const Checker check(file);
  check.Range("embedding_length", spec.hidden_size, 1, kMaxWidth);
  check.Range("block_count", spec.num_layers, 1, kMaxLayers);
  check.Range("vocabulary size", spec.vocab_size, 1, kMaxVocab);
  check.Range("context_length", spec.context_length, 1, kMaxContext);
  check.Holds(static_cast<int64_t>(spec.layers.size()) == spec.num_layers, "layers",
              std::to_string(spec.num_layers), static_cast<int64_t>(spec.layers.size()));
  check.Positive("embedding_scale", spec.embedding_scale);
  check.Positive("logit_scale", spec.logit_scale);
  check.NotNegative("final_logit_softcapping", spec.logit_softcap);
  for (const LayerSpec& layer : spec.layers) CheckLayer(check, layer);
  CheckKvWidths(check, spec);
}

bool HasEqualFfns(const ModelSpec& spec) {
  const FfnSpec& main = MainFfn(spec);
  return std::all_of(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& layer) {
    return layer.ffn.num_experts == main.num_experts &&
           layer.ffn.intermediate_size == main.intermediate_size;
  });
}

std::vector<RopeSpec> RopesOf(const ModelSpec& spec) {
  std::vector<RopeSpec> ropes;
  for (const LayerSpec& layer : spec.layers) {
    const std::optional<RopeSpec>& rope = layer.attention.rope;
    if (rope && std::find(ropes.begin(), ropes.end(), *rope) == ropes.end()) ropes.push_back(*rope);
  }
  return ropes;
}

}  // namespace hearth
