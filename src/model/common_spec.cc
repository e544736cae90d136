#include "model/common_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/arch_keys.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

RopeSpec ReadRope(const ArchKeys& keys, int64_t head_dim, int64_t context_length,
                  const std::string& file) {
  RopeSpec rope;
  rope.dims = keys.Int("rope.dimension_count", head_dim);
  rope.base = keys.Float("rope.freq_base", 10000);
  // Older files say scale_linear instead of type and factor.
  rope.factor = keys.Float("rope.scaling.factor", keys.Float("rope.scale_linear", 1));
  if (rope.factor == 0) rope.factor = 1;  // how some converters write that there is none
  const std::string* type = keys.String("rope.scaling.type");
  if (type == nullptr) {
    rope.scaling = rope.factor != 1 ? RopeScalingKind::kLinear : RopeScalingKind::kNone;
  } else if (*type == "linear") {
    rope.scaling = RopeScalingKind::kLinear;
  } else if (*type == "yarn") {
    rope.scaling = RopeScalingKind::kYarn;
  } else if (*type == "longrope") {
    rope.scaling = RopeScalingKind::kLong;
  } else if (*type != "none") {
    throw Error(ErrorCode::kUnsupported, file, keys.Name("rope.scaling.type"),
                "none, linear, yarn or longrope", "'" + Printable(*type) + "'");
  }
  // The factors of LongRoPE are tensors.
  if (rope.scaling == RopeScalingKind::kLong) rope.factor = 1;
  const bool has_factor = rope.scaling == RopeScalingKind::kLong ||
                          keys.Has("rope.scaling.factor") || keys.Has("rope.scale_linear");
  if (rope.scaling != RopeScalingKind::kNone && !has_factor) {
    throw Error(ErrorCode::kCorrupt, file, keys.Name("rope.scaling.factor"),
                "a number, which rope.scaling.type " + *type + " needs", "nothing");
  }
  rope.original_context = keys.Int("rope.scaling.original_context_length", context_length);
  if (rope.scaling == RopeScalingKind::kLong) {
    rope.attention_factor = keys.Float("rope.scaling.attn_factor", 1);
  }
  if (rope.scaling == RopeScalingKind::kYarn) {
    rope.yarn_beta_fast = keys.Float("rope.scaling.yarn_beta_fast", 32);
    rope.yarn_beta_slow = keys.Float("rope.scaling.yarn_beta_slow", 1);
    rope.attention_factor =
        YarnAttentionFactor(rope.factor) *
        keys.Float("rope.scaling.yarn_attn_factor", keys.Float("rope.scaling.attn_factor", 1));
  }
  return rope;
}

// Whether a layer of the file has a tensor of this name. A file that has it in one layer must have
// it in all.
bool HasLayerTensor(const GgufFile& file, std::string_view name) {
  return std::any_of(file.tensors().begin(), file.tensors().end(), [&](const GgufTensor& tensor) {
    return tensor.name.starts_with("blk.") && tensor.name.ends_with(name) &&
           tensor.name[tensor.name.size() - name.size() - 1] == '.';
  });
}

AttentionSpec ReadAttention(const ArchKeys& keys, int64_t hidden_size, const GgufFile& file) {
  AttentionSpec attention;
  attention.num_heads = keys.Int("attention.head_count");
  attention.num_kv_heads = keys.Int("attention.head_count_kv", attention.num_heads);
  if (attention.num_heads < 1) {
    throw Error(ErrorCode::kCorrupt, file.path(), keys.Name("attention.head_count"), "at least 1",
                std::to_string(attention.num_heads));
  }
  attention.head_dim = keys.Int("attention.key_length", hidden_size / attention.num_heads);
  const int64_t value_dim = keys.Int("attention.value_length", attention.head_dim);
  if (value_dim != attention.head_dim) {
    throw Error(ErrorCode::kUnsupported, file.path(), keys.Name("attention.value_length"),
                "the key length " + std::to_string(attention.head_dim), std::to_string(value_dim));
  }
  attention.sliding_window = keys.Int("attention.sliding_window", 0);
  attention.query_scale =
      keys.Float("attention.scale", 1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  // Some models of every family have biases.
  attention.qkv_bias = HasLayerTensor(file, "attn_q.bias") || HasLayerTensor(file, "attn_k.bias") ||
                       HasLayerTensor(file, "attn_v.bias");
  attention.output_bias = HasLayerTensor(file, "attn_output.bias");
  attention.fused_qkv = HasLayerTensor(file, "attn_qkv.weight");
  attention.qkv_bias |= attention.fused_qkv && HasLayerTensor(file, "attn_qkv.bias");
  attention.softcap = keys.Float("attn_logit_softcapping", 0);
  return attention;
}

// "<architecture>.pooling_type", as llama.cpp numbers them; models that are no embedders have none.
PoolingKind ReadPooling(const GgufFile& file) {
  const std::string key = file.metadata().GetString("general.architecture") + ".pooling_type";
  const int64_t number = file.metadata().FindInt(key).value_or(-1);
  switch (number) {
    case -1:
    case 1:
      return PoolingKind::kMean;
    case 0:
      return PoolingKind::kNone;
    case 2:
      return PoolingKind::kFirst;
    case 3:
      return PoolingKind::kLast;
    default:
      throw Error(
          ErrorCode::kUnsupported, file.path(), key, "0 to 3 (none, mean, first or last token)",
          number == 4 ? "4 (rank): models that score texts cannot be run" : std::to_string(number));
  }
}

void SetSiluThresholds(const GgufFile& file, ModelSpec* spec) {
  const auto thresholds = file.metadata().FindFloats(kFfnThresholdsKey);
  try {
    ThresholdSilu(thresholds.value_or(std::vector<float>()), spec);
  } catch (const Error& error) {
    throw Error(ErrorCode::kCorrupt, file.path(),
                std::string(kFfnThresholdsKey) + ": " + error.what());
  }
}

RouterScore ReadRouterScore(const ArchKeys& keys, const GgufFile& file) {
  const int64_t number = keys.Int("expert_gating_func", 0);
  switch (number) {
    case 0:
    case 1:
      return RouterScore::kSoftmax;
    case 2:
      return RouterScore::kSigmoid;
    default:
      throw Error(ErrorCode::kUnsupported, file.path(), keys.Name("expert_gating_func"),
                  "1 (softmax) or 2 (sigmoid)", std::to_string(number));
  }
}

// What a file says of experts, but their number and size.
void ReadMixture(const ArchKeys& keys, const GgufFile& file, FfnSpec* ffn) {
  ffn->num_experts_per_token = keys.Int("expert_used_count", 0);
  ffn->router_score = ReadRouterScore(keys, file);
  ffn->router_bias = HasLayerTensor(file, "ffn_gate_inp.bias");
  ffn->choice_bias = HasLayerTensor(file, "exp_probs_b.bias");
  ffn->bias = HasLayerTensor(file, "ffn_down_exps.bias");
  ffn->num_expert_groups = keys.Int("expert_group_count", 1);
  ffn->num_groups_per_token = keys.Int("expert_group_used_count", 1);
  ffn->normalize_expert_weights = keys.Bool("expert_weights_norm", true);
  ffn->expert_weight_scale = keys.Float("expert_weights_scale", 1);
  const int64_t shared = keys.Int("expert_shared_count", 0) * ffn->intermediate_size;
  ffn->shared_intermediate_size = keys.Int("expert_shared_feed_forward_length", shared);
  ffn->shared_gate = HasLayerTensor(file, "ffn_gate_inp_shexp.weight");
}

// The first layers of some mixtures have one FFN each, of another size.
void MakeLeadingLayersDense(const ArchKeys& keys, const GgufFile& file, ModelSpec* spec) {
  const int64_t dense = keys.Int("leading_dense_block_count", 0);
  if (dense >= spec->num_layers) {
    throw Error(ErrorCode::kCorrupt, file.path(), keys.Name("leading_dense_block_count"),
                "below the number of layers, " + std::to_string(spec->num_layers),
                std::to_string(dense));
  }
  for (size_t l = 0; l < static_cast<size_t>(dense); ++l) {
    const bool bias = HasLayerTensor(file, "ffn_down.bias");
    spec->layers[l].ffn = {.intermediate_size = keys.Int("feed_forward_length"), .bias = bias};
  }
}

}  // namespace

double YarnAttentionFactor(double factor, double multiplier) {
  return factor <= 1 ? 1.0 : 0.1 * multiplier * std::log(factor) + 1.0;
}

ModelSpec ReadCommonSpec(const GgufFile& file) {
  const ArchKeys keys(file);
  ModelSpec spec;
  spec.architecture = file.metadata().GetString("general.architecture");
  const std::string* name = file.metadata().FindString("general.name");
  spec.name = name != nullptr ? *name : "";
  spec.hidden_size = keys.Int("embedding_length");
  spec.num_layers = keys.Int("block_count");
  spec.context_length = keys.Int("context_length");
  const auto embedding = file.FindShape("token_embd.weight");
  if (!embedding) file.GetTensor("token_embd.weight");  // says that it is missing
  spec.vocab_size = static_cast<int64_t>(std::min<uint64_t>((*embedding)[1], uint64_t{1} << 62));
  const int64_t said_vocab = keys.Int("vocab_size", spec.vocab_size);
  if (said_vocab != spec.vocab_size) {
    throw Error(ErrorCode::kCorrupt, file.path(), keys.Name("vocab_size"),
                std::to_string(spec.vocab_size) + ", the rows of token_embd.weight",
                std::to_string(said_vocab));
  }
  spec.tied_embeddings = !file.FindShape("output.weight");
  spec.output_bias = file.FindShape("output.bias").has_value();
  spec.embedding_scale = keys.Float("embedding_scale", 1);
  spec.logit_softcap = keys.Float("final_logit_softcapping", 0);
  spec.pooling = ReadPooling(file);

  LayerSpec layer;
  layer.norm_epsilon = static_cast<float>(keys.Float(
      "attention.layer_norm_rms_epsilon", keys.Float("attention.layer_norm_epsilon", 1e-5)));
  layer.attention = ReadAttention(keys, spec.hidden_size, file);
  layer.ffn.num_experts = keys.Int("expert_count", 0);
  layer.ffn.fused_gate_up = HasLayerTensor(file, "ffn_gate_up_exps.weight");
  layer.ffn.intermediate_size = layer.ffn.num_experts > 0 && keys.Has("expert_feed_forward_length")
                                    ? keys.Int("expert_feed_forward_length")
                                    : keys.Int("feed_forward_length");
  layer.ffn.bias = HasLayerTensor(file, "ffn_gate.bias") || HasLayerTensor(file, "ffn_up.bias") ||
                   HasLayerTensor(file, "ffn_down.bias");
  if (layer.ffn.num_experts > 0) ReadMixture(keys, file, &layer.ffn);
  layer.residual_scale = keys.Float("residual_scale", 1);
  layer.attention.rope = ReadRope(keys, layer.attention.head_dim, spec.context_length, file.path());
  layer.attention.rope->has_factors = file.FindShape("rope_freqs.weight").has_value();
  if (spec.num_layers < 1 || spec.num_layers > 4096) {
    throw Error(ErrorCode::kCorrupt, file.path(), keys.Name("block_count"), "1 to 4096",
                std::to_string(spec.num_layers));
  }
  spec.guessing_layers = keys.Int("nextn_predict_layers", 0);
  if (spec.guessing_layers >= spec.num_layers) {
    throw Error(ErrorCode::kCorrupt, file.path(), keys.Name("nextn_predict_layers"),
                "below block_count " + std::to_string(spec.num_layers),
                std::to_string(spec.guessing_layers));
  }
  spec.num_layers -= spec.guessing_layers;
  spec.layers.assign(static_cast<size_t>(spec.num_layers), layer);
  if (layer.ffn.num_experts > 0) MakeLeadingLayersDense(keys, file, &spec);
  return spec;
}

void SetLayerNormsAndTwoMatrixFfns(ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) {
    layer.norm = NormKind::kLayer;
    layer.ffn.kind = FfnKind::kTwoMatrix;
  }
}

void SetLearnedPositions(const GgufFile& file, ModelSpec* spec) {
  spec->positions = PositionKind::kLearned;
  const GgufTensor& table = file.GetTensor("position_embd.weight");
  spec->position_offset =
      static_cast<int64_t>(std::min<uint64_t>(table.ne[1], 1u << 31)) - spec->context_length;
  if (spec->position_offset != 0 && spec->position_offset != 2) {
    throw Error(ErrorCode::kCorrupt, file.path(), "rows of position_embd.weight",
                fmt::format("the context length {}, or 2 more", spec->context_length),
                std::to_string(table.ne[1]));
  }
  for (LayerSpec& layer : spec->layers) layer.attention.rope.reset();
}

void SetRopeLayout(RopeLayout layout, ModelSpec* spec) {
  for (LayerSpec& layer : spec->layers) {
    if (layer.attention.rope) layer.attention.rope->layout = layout;
  }
}

void SetFfnActivation(const GgufFile& file, FfnActivation activation, float threshold,
                      ModelSpec* spec) {
  if (const std::string* name = file.metadata().FindString(kFfnActivationKey)) {
    const std::optional<FfnActivation> known = FfnActivationFromName(*name);
    if (!known) {
      throw Error(ErrorCode::kUnsupported, file.path(), std::string(kFfnActivationKey),
                  "one of " + FfnActivationNames(), "'" + Printable(*name) + "'");
    }
    activation = *known;
  }
  if (const auto value = file.metadata().FindFloat(kFfnThresholdKey)) {
    threshold = static_cast<float>(*value);
  }
  if (!std::isfinite(threshold)) {
    throw Error(ErrorCode::kCorrupt, file.path(), std::string(kFfnThresholdKey), "a finite number",
                std::to_string(threshold));
  }
  const bool is_by_layer = activation == FfnActivation::kThresholdedSilu;
  for (LayerSpec& layer : spec->layers) {
    layer.ffn.activation = is_by_layer ? FfnActivation::kSilu : activation;
    layer.ffn.threshold = threshold;
  }
  if (is_by_layer) SetSiluThresholds(file, spec);
}

}  // namespace hearth
