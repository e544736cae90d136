// Qwen 2 and 3, and their mixtures.
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"

namespace hearth {
namespace published_qwen {
namespace {

constexpr PublishedExperts kExperts = {
    "mlp.experts", {"gate_proj", "up_proj", "down_proj"}, false, "num_experts"};
constexpr PublishedModule kRouterAndSharedExpert[] = {
    Norm("mlp.gate", "ffn_gate_inp"), Norm("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    Norm("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    Norm("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    Norm("mlp.shared_expert.down_proj", "ffn_down_shexp")};

void ReadQwen2Moe(PublishedConfigReader& reader) {
  reader.Set("expert_shared_feed_forward_length",
             reader.json().Int("shared_expert_intermediate_size", 5632));
}

constexpr PublishedFamily Qwen(const char* model_type, const char* architecture,
                               std::span<const PublishedModule> layer) {
  return {.model_type = model_type,
          .architecture = architecture,
          .top = kUsualTop,
          .layer = layer,
          .dense = kUsualFfn};
}

constexpr PublishedFamily Qwen2Moe() {
  PublishedFamily family = Qwen("qwen2_moe", "qwen2moe", kUsualLayer);
  family.experts = &kExperts;
  family.mixture = kRouterAndSharedExpert;
  family.read_config = ReadQwen2Moe;
  return family;
}

constexpr PublishedFamily Qwen3Moe() {
  PublishedFamily family = Qwen("qwen3_moe", "qwen3moe", kLayerWithHeadNorms);
  family.experts = &kExperts;
  family.mixture = kUsualRouter;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Qwen("qwen2", "qwen2", kUsualLayer), Qwen2Moe(),
                                         Qwen("qwen3", "qwen3", kLayerWithHeadNorms), Qwen3Moe()};

}  // namespace
}  // namespace published_qwen

std::span<const PublishedFamily> PublishedQwens() { return published_qwen::kFamilies; }

}  // namespace hearth
