// GLM 4 (0414) and the mixtures from GLM 4.5 on.
#include <fmt/format.h>

#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"
#include "import/hugging_face_tensors.h"

namespace hearth {
namespace published_glm4 {
namespace {

constexpr PublishedModule kLayer[] = {Norm("input_layernorm", "attn_norm"),
                                      Linear("self_attn.q_proj", "attn_q"),
                                      Linear("self_attn.k_proj", "attn_k"),
                                      Linear("self_attn.v_proj", "attn_v"),
                                      Linear("self_attn.o_proj", "attn_output"),
                                      Norm("post_self_attn_layernorm", "post_attention_norm"),
                                      Norm("post_attention_layernorm", "ffn_norm"),
                                      Norm("post_mlp_layernorm", "post_ffw_norm")};
constexpr PublishedModule kFfn[] = {Linear("mlp.gate_up_proj", "ffn_up"),
                                    Linear("mlp.down_proj", "ffn_down")};

constexpr PublishedModule kLayerOfMixture[] = {
    Norm("input_layernorm", "attn_norm"),
    Linear("self_attn.q_proj", "attn_q"),
    Linear("self_attn.k_proj", "attn_k"),
    Linear("self_attn.v_proj", "attn_v"),
    Linear("self_attn.o_proj", "attn_output"),
    Optional(Norm("self_attn.q_norm", "attn_q_norm")),
    Optional(Norm("self_attn.k_norm", "attn_k_norm")),
    Norm("post_attention_layernorm", "post_attention_norm")};
constexpr PublishedModule kRouterAndSharedExpert[] = {
    Norm("mlp.gate", "ffn_gate_inp"), Norm("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    Norm("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    Norm("mlp.shared_experts.down_proj", "ffn_down_shexp")};
constexpr PublishedExperts kExperts = {
    "mlp.experts", {"gate_proj", "up_proj", "down_proj"}, true, "n_routed_experts"};
// What layers that guess tokens ahead have besides.
constexpr PublishedModule kGuessing[] = {
    Norm("eh_proj", "nextn.eh_proj"),
    Norm("enorm", "nextn.enorm"),
    Norm("hnorm", "nextn.hnorm"),
    Optional(Norm("embed_tokens", "nextn.embed_tokens")),
    Optional(Norm("shared_head.head", "nextn.shared_head_head")),
    Optional(Norm("shared_head.norm", "nextn.shared_head_norm"))};

constexpr uint32_t kSigmoid = 2;  // of expert_gating_func

void ReadGlm4Moe(PublishedConfigReader& reader) {
  const PublishedJson& json = reader.json();
  reader.Set("expert_group_count", reader.ObeyedInt("n_group", 1));
  reader.Set("expert_group_used_count", reader.ObeyedInt("topk_group", 1));
  reader.Set("expert_shared_count", json.Int("n_shared_experts", 1));
  reader.Set("expert_gating_func", kSigmoid);
  reader.SetFloat("expert_weights_scale", reader.Obeyed("routed_scaling_factor", 1));
  reader.out().num_dense_layers = reader.ObeyedInt("first_k_dense_replace", 1);
  reader.Set("leading_dense_block_count", reader.out().num_dense_layers);
  reader.Obey("use_qk_norm");  // which tensors show
}

void TakeChoiceBias(PublishedTensors& tensors, const std::string& from, const std::string& to) {
  tensors.Take(from + "mlp.gate.e_score_correction_bias", to + "exp_probs_b.bias");
}

// Takes the layers after the last, which guess tokens ahead, where the folder has any.
void TakeGuessingLayers(PublishedTensors& tensors, PublishedConfig* config) {
  uint32_t count = 0;
  const auto prefix = [&] { return fmt::format("model.layers.{}.", config->num_layers + count); };
  while (tensors.Has(prefix() + "eh_proj.weight")) {
    const std::string from = prefix();
    const std::string to = fmt::format("blk.{}.", config->num_layers + count);
    tensors.TakeLayer(config->num_layers + count);
    for (const PublishedModule& module : kGuessing) tensors.TakeModule(module, from, to);
    ++count;
  }
  config->metadata.SetUint32("glm4moe.nextn_predict_layers", count);
  config->metadata.SetUint32("glm4moe.block_count",
                             static_cast<uint32_t>(config->num_layers) + count);
}

constexpr PublishedFamily Glm4() {
  PublishedFamily family = {.model_type = "glm4",
                            .architecture = "glm4",
                            .top = kUsualTop,
                            .layer = kLayer,
                            .dense = kFfn};
  family.norm_epsilon = 1.5625e-07;
  family.rope.may_be_partial = true;
  family.rope.partial = 0.5;
  return family;
}

constexpr PublishedFamily Glm4Moe() {
  PublishedFamily family = {.model_type = "glm4_moe",
                            .architecture = "glm4moe",
                            .top = kUsualTop,
                            .layer = kLayerOfMixture,
                            .dense = kUsualFfn};
  family.mixture = kRouterAndSharedExpert;
  family.experts = &kExperts;
  family.norm_epsilon = 1e-5;
  family.rope.may_be_partial = true;
  family.rope.partial = 0.5;
  family.read_config = ReadGlm4Moe;
  family.take_layer = TakeChoiceBias;
  family.take_rest = TakeGuessingLayers;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Glm4(), Glm4Moe()};

}  // namespace
}  // namespace published_glm4

std::span<const PublishedFamily> PublishedGlms() { return published_glm4::kFamilies; }

}  // namespace hearth
