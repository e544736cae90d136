#include "prepare/synth/synth_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "measure/topic_walk.h"
#include "model/archs/smallthinker.h"
#include "model/weights.h"
#include "prepare/synth/synth_vocabulary.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

// Standard deviation of the logits: some tokens are clearly more likely than others, and the two
// best are rarely close enough for rounding to swap them.
constexpr double kLogitStd = 3;
// Of the attention scores. Below 2 a query attends to everything alike and text would depend on
// little but the last token.
constexpr double kScoreStd = 2.5;
// Of the router's logits.
constexpr double kRouterStd = 2;
// Of expert_gating_func.
constexpr int64_t kSigmoidGating = 2;
constexpr double kNormStd = 0.05;
constexpr double kBiasStd = 0.1;

// Root mean square of what reaches down where gate and up are normal with variance 1.
double ActivationScale(FfnActivation activation) {
  switch (activation) {
    case FfnActivation::kSilu:
    case FfnActivation::kGelu:
    case FfnActivation::kGeluErf:
    case FfnActivation::kClampedSwiglu:
    case FfnActivation::kThresholdedSilu:
      return 0.6;
    case FfnActivation::kRelu:
    case FfnActivation::kFatRelu:
      return 0.7;
    case FfnActivation::kDRelu:
      return 0.5;
  }
  return 1;
}

// "blk.3.attn_q.weight" -> 3; -1 outside layers.
int64_t LayerOf(std::string_view name) {
  if (!name.starts_with("blk.")) return -1;
  int64_t layer = 0;
  for (const char c : name.substr(4, name.find('.', 4) - 4)) layer = 10 * layer + (c - '0');
  return layer;
}

// "blk.3.attn_q.weight" -> "attn_q.weight"
std::string_view RoleOf(std::string_view name) {
  if (!name.starts_with("blk.")) return name;
  return name.substr(name.find('.', 4) + 1);
}

// `cols` is the number of inputs that an output sums over.
WeightDistribution DistributionOf(const WeightDecl& decl, const ModelShape& shape) {
  const std::string_view role = RoleOf(decl.name);
  const double unit = 1 / std::sqrt(static_cast<double>(decl.cols));
  // 2 * layers branches add to the residual stream; together they add a variance of about 1.
  const double branch = unit / std::sqrt(2 * static_cast<double>(shape.num_layers));
  const double score_gain = std::sqrt(kScoreStd);  // half of it in q, half in k
  if (role.ends_with(".bias")) return {0, kBiasStd};
  if (role == "attn_q_norm.weight" || role == "attn_k_norm.weight") {
    return {score_gain, kNormStd};
  }
  if (role == "output_norm.weight" && shape.tied_embeddings) return {kLogitStd, kNormStd};
  if (decl.is_vector) return {1, kNormStd};  // the other norms
  // Small, so that the residual stream soon depends on more than the last token, and tied
  // embeddings do not make every token its own successor.
  if (role == "token_embd.weight") return {0, unit};
  if (role == "output.weight") return {0, kLogitStd * unit};
  if (role == "attn_q.weight" || role == "attn_k.weight") return {0, score_gain * unit};
  if (role == "attn_output.weight") return {0, branch};
  if (role == "ffn_gate_inp.weight") return {0, kRouterStd * unit};
  if (role.starts_with("ffn_down")) return {0, branch / ActivationScale(shape.activation)};
  return {0, unit};  // v, gate, up
}

// What planting sparsity asks of a tensor; sets nothing where it is drawn as any other.
void Plant(const WeightDecl& decl, const ModelShape& shape, const PlantedModel& planted,
           SynthTensor* tensor) {
  const std::string_view role = RoleOf(decl.name);
  const auto hidden = static_cast<double>(shape.hidden_size);
  // 2 * layers branches share the energy that they may add.
  const double branch =
      std::sqrt(PlantedModel::kBranchEnergy /
                (2 * static_cast<double>(shape.num_layers) * static_cast<double>(decl.cols)));
  if (role == "token_embd.weight") tensor->source = WeightSource::kPlantedEmbedding;
  if (role == "attn_output.weight") tensor->random.distribution.std = branch;
  if (role.starts_with("ffn_down")) {
    tensor->random.distribution.std =
        branch /
        (planted.plants_neurons() ? planted.activation_rms() : ActivationScale(shape.activation));
  }
  if (planted.plants_router() && role == "ffn_gate_inp.weight") {
    tensor->source = WeightSource::kPlantedRouter;
  }
  if (planted.plants_neurons() && (role == "ffn_gate.weight" || role == "ffn_gate_exps.weight")) {
    tensor->source = WeightSource::kPlantedGate;
  }
  if (planted.plants_up() && (role == "ffn_up.weight" || role == "ffn_up_exps.weight")) {
    tensor->source = WeightSource::kPlantedUp;
  }
  // Embeddings are as long as sqrt(hidden), not 1.
  if (role == "output_norm.weight" && shape.tied_embeddings) {
    tensor->random.distribution = {kLogitStd / std::sqrt(hidden), kNormStd / std::sqrt(hidden)};
  }
}

bool IsQuantized(DType dtype) { return InfoOf(dtype).block_size > 1; }

void AddGeneralKeys(const ModelShape& shape, DType quant, uint64_t seed, GgufMetadata* metadata) {
  metadata->SetString("general.architecture", shape.architecture);
  metadata->SetString("general.name", shape.name);
  metadata->SetString("general.description", "random weights, made by hearth synth");
  metadata->SetUint32("general.file_type", FileTypeOf(quant));
  if (IsQuantized(quant)) metadata->SetUint32("general.quantization_version", kQuantizationVersion);
  metadata->SetUint64(kSynthSeedKey, seed);
  // Where a file says nothing, its architecture does.
  if (shape.activation == UsualActivation(shape.architecture)) return;
  metadata->SetString("hearth.ffn_activation", FfnActivationName(shape.activation));
  if (shape.activation == FfnActivation::kFatRelu) {
    metadata->SetFloat32("hearth.ffn_threshold", static_cast<float>(shape.threshold));
  }
}

// What was asked for; what came of it is measured (docs/synth.md).
void AddPlantedKeys(const PlantedModel& planted, GgufMetadata* metadata) {
  planted.space().topics().WriteTo(metadata);
  const PlantedShares& shares = planted.shares();
  metadata->SetFloat32("hearth.synth.topic_share", static_cast<float>(shares.topic_share));
  if (planted.plants_router()) {
    metadata->SetFloat32("hearth.synth.router_topic_share",
                         static_cast<float>(shares.router_topic_share));
  }
  if (!planted.plants_neurons()) return;
  metadata->SetFloat32("hearth.synth.active", static_cast<float>(shares.active));
  metadata->SetFloat32("hearth.synth.gate", static_cast<float>(shares.gate));
  metadata->SetFloat32("hearth.synth.skew", static_cast<float>(shares.skew));
  metadata->SetUint32("hearth.synth.rank", static_cast<uint32_t>(shares.rank));
}

void AddArchitectureKeys(const ModelShape& shape, GgufMetadata* metadata) {
  const auto set_int = [&](const char* key, int64_t value) {
    metadata->SetUint32(shape.architecture + "." + key, static_cast<uint32_t>(value));
  };
  const auto set_float = [&](const char* key, double value) {
    metadata->SetFloat32(shape.architecture + "." + key, static_cast<float>(value));
  };
  set_int("vocab_size", shape.vocab_size);
  set_int("context_length", shape.context_length);
  set_int("embedding_length", shape.hidden_size);
  set_int("block_count", shape.num_layers);
  set_int("feed_forward_length", shape.intermediate_size);
  set_int("attention.head_count", shape.num_heads);
  set_int("attention.head_count_kv", shape.num_kv_heads);
  set_int("attention.key_length", shape.head_dim);
  set_int("attention.value_length", shape.head_dim);
  set_float("attention.layer_norm_rms_epsilon", shape.norm_epsilon);
  set_int("rope.dimension_count", shape.head_dim);
  set_float("rope.freq_base", shape.rope_base);
  if (shape.sliding_window > 0) set_int("attention.sliding_window", shape.sliding_window);
  if (shape.num_experts > 0) {
    set_int("expert_count", shape.num_experts);
    set_int("expert_used_count", shape.num_experts_per_token);
    set_int("expert_feed_forward_length", shape.intermediate_size);
    if (shape.architecture == "smallthinker") set_int("expert_gating_func", kSigmoidGating);
  }
}

std::vector<uint64_t> DimensionsOf(const WeightDecl& decl) {
  std::vector<uint64_t> ne = {static_cast<uint64_t>(decl.cols)};
  if (!decl.is_vector) ne.push_back(static_cast<uint64_t>(decl.rows));
  // One expert is still a stack of experts.
  if (decl.name.find("_exps.") != std::string::npos) {
    ne.push_back(static_cast<uint64_t>(decl.experts));
  }
  return ne;
}

void CheckType(DType quant) {
  if (!CanSynthesize(quant)) {
    throw Error(ErrorCode::kUnsupported, Field{"quant"}, "type of the weights",
                "F32, F16, BF16, Q4_0, Q4_1 or Q8_0", NameOf(quant));
  }
}

}  // namespace

ModelSpec SpecOf(const ModelShape& shape) {
  LayerSpec layer;
  layer.norm_epsilon = static_cast<float>(shape.norm_epsilon);
  layer.attention.num_heads = shape.num_heads;
  layer.attention.num_kv_heads = shape.num_kv_heads;
  layer.attention.head_dim = shape.head_dim;
  layer.attention.sliding_window = shape.sliding_window;
  layer.attention.query_scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  layer.attention.qkv_bias = shape.qkv_bias;
  layer.attention.qk_norm = shape.qk_norm ? QkNorm::kHeads : QkNorm::kNone;
  RopeSpec& rope = *layer.attention.rope;
  rope.layout = shape.architecture == "llama" ? RopeLayout::kAdjacent : RopeLayout::kHalves;
  rope.dims = shape.head_dim;
  rope.base = static_cast<float>(shape.rope_base);
  rope.original_context = shape.context_length;
  layer.ffn.activation = shape.activation;
  layer.ffn.threshold = static_cast<float>(shape.threshold);
  layer.ffn.intermediate_size = shape.intermediate_size;
  layer.ffn.num_experts = shape.num_experts;
  layer.ffn.num_experts_per_token = shape.num_experts_per_token;
  if (shape.architecture == "smallthinker") layer.ffn.router_score = RouterScore::kSigmoid;
  ModelSpec spec;
  spec.architecture = shape.architecture;
  spec.name = shape.name;
  spec.hidden_size = shape.hidden_size;
  spec.num_layers = shape.num_layers;
  spec.vocab_size = shape.vocab_size;
  spec.context_length = shape.context_length;
  spec.tied_embeddings = shape.tied_embeddings;
  spec.layers.assign(static_cast<size_t>(shape.num_layers), layer);
  if (shape.architecture == "smallthinker") SetSmallThinkerLayers(&spec);
  return spec;
}

SynthPlan PlanSynth(const ModelShape& shape, DType quant, uint64_t seed,
                    const PlantedModel* planted) {
  ValidateShape(shape, shape.name.empty() ? "shape" : shape.name);
  CheckType(quant);
  SynthPlan plan;
  ModelWeights slots;  // never filled
  for (WeightDecl& decl : DeclareWeights(SpecOf(shape), slots)) {
    const bool is_float = decl.is_vector || RoleOf(decl.name) == "ffn_gate_inp.weight";
    SynthTensor tensor;
    tensor.random = {DistributionOf(decl, shape), plan.tensors.size()};
    tensor.layer = LayerOf(decl.name);
    if (planted != nullptr) Plant(decl, shape, *planted, &tensor);
    tensor.decl.dtype = is_float ? DType::kF32 : quant;
    tensor.decl.ne = DimensionsOf(decl);
    tensor.decl.name = std::move(decl.name);
    const uint32_t block = InfoOf(tensor.decl.dtype).block_size;
    if (tensor.decl.ne[0] % block != 0) {
      throw Error(ErrorCode::kInvalidArgument, shape.name, "row length of " + tensor.decl.name,
                  fmt::format("a multiple of {} for {}", block, NameOf(quant)),
                  fmt::format("{}", tensor.decl.ne[0]));
    }
    plan.tensors.push_back(std::move(tensor));
  }
  AddGeneralKeys(shape, quant, seed, &plan.metadata);
  AddArchitectureKeys(shape, &plan.metadata);
  if (planted != nullptr) AddPlantedKeys(*planted, &plan.metadata);
  AddSyntheticVocabulary(shape.vocab_size, &plan.metadata);
  return plan;
}

}  // namespace hearth
