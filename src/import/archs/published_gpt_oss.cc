// gpt-oss: experts as tensors of three dimensions with inputs first, whose gates and ups alternate.
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"
#include "import/hugging_face_tensors.h"

namespace hearth {
namespace published_gpt_oss {
namespace {

constexpr PublishedModule kLayer[] = {Norm("input_layernorm", "attn_norm"),
                                      Linear("self_attn.q_proj", "attn_q"),
                                      Linear("self_attn.k_proj", "attn_k"),
                                      Linear("self_attn.v_proj", "attn_v"),
                                      Linear("self_attn.o_proj", "attn_output"),
                                      Norm("post_attention_layernorm", "post_attention_norm")};
constexpr PublishedModule kRouter[] = {Linear("mlp.router", "ffn_gate_inp")};
constexpr PublishedExperts kExperts = {
    "mlp.experts", {nullptr, nullptr, nullptr}, true, "num_local_experts"};

void ReadGptOss(PublishedConfigReader& reader) {
  reader.Set("expert_feed_forward_length", reader.json().Int("intermediate_size"));
  // GGUF's readers take both for granted.
  reader.ExpectFloat("swiglu_limit", 7, 7);
  reader.ExpectFloat("swiglu_alpha", 1.702, 1.702);
}

void TakeExperts(PublishedTensors& tensors, const std::string& from, const std::string& to) {
  tensors.Take(from + "self_attn.sinks", to + "attn_sinks.weight");
  const std::string experts = from + "mlp.experts.";
  tensors.TakeAlternating(experts + "gate_up_proj", to + "ffn_gate_exps.weight",
                          to + "ffn_up_exps.weight");
  tensors.TakeAlternating(experts + "gate_up_proj_bias", to + "ffn_gate_exps.bias",
                          to + "ffn_up_exps.bias");
  tensors.Take(experts + "down_proj", to + "ffn_down_exps.weight", PublishedChange::kTranspose);
  tensors.Take(experts + "down_proj_bias", to + "ffn_down_exps.bias");
}

constexpr PublishedFamily GptOss() {
  PublishedFamily family = {
      .model_type = "gpt_oss", .architecture = "gpt-oss", .top = kUsualTop, .layer = kLayer};
  family.mixture = kRouter;
  family.experts = &kExperts;
  family.norm_epsilon = 1e-5;
  family.activation = nullptr;
  family.obeys_activation = false;
  family.rope.theta = 150000;
  family.rope.has_whole_ramp = false;
  family.sliding_window = 128;
  family.has_window = [](int64_t layer) { return layer % 2 == 0; };
  family.read_config = ReadGptOss;
  family.take_layer = TakeExperts;
  return family;
}

constexpr PublishedFamily kFamilies[] = {GptOss()};

}  // namespace
}  // namespace published_gpt_oss

std::span<const PublishedFamily> PublishedGptOss() { return published_gpt_oss::kFamilies; }

}  // namespace hearth
