// Llama, what shares its graph (Mistral, Mixtral, Bamboo, TurboSparse, ProSparse), Seed-OSS, ERNIE
// 4.5 and SmolLM3.
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"

namespace hearth {
namespace published_llama {
namespace {

constexpr PublishedExperts kMixtralExperts = {
    "block_sparse_moe.experts", {"w1", "w3", "w2"}, true, "num_local_experts"};
constexpr PublishedModule kMixtralRouter[] = {Norm("block_sparse_moe.gate", "ffn_gate_inp")};

// Every fourth layer is told no positions; GGUF has no key for others.
constexpr int64_t kNoRopeInterval = 4;

void ReadSmolLm3(PublishedConfigReader& reader) {
  reader.ExpectInt("no_rope_layer_interval", kNoRopeInterval);
  reader.ExpectLayers("no_rope_layers", "0 in every fourth layer and 1 in the others",
                      [](int64_t layer, const nlohmann::json& value) {
                        return value == (layer % kNoRopeInterval == kNoRopeInterval - 1 ? 0 : 1);
                      });
}

constexpr PublishedFamily Llama(const char* model_type, const char* architecture = "llama") {
  PublishedFamily family = {.model_type = model_type,
                            .architecture = architecture,
                            .top = kUsualTop,
                            .layer = kUsualLayer,
                            .dense = kUsualFfn};
  family.interleaves_heads = true;
  return family;
}

// Bamboo and TurboSparse, whose configs say "relu" or nothing.
constexpr PublishedFamily WithDRelu(PublishedFamily family) {
  family.activation = "drelu";
  family.obeys_activation = false;
  return family;
}

constexpr PublishedFamily Mixtral(const char* model_type) {
  PublishedFamily family = Llama(model_type);
  family.experts = &kMixtralExperts;
  family.mixture = kMixtralRouter;
  family.norm_epsilon = 1e-5;
  family.rope.theta = 1e6;
  return family;
}

// What queries grow by, and what YaRN's factor for scores is divided by. The factor has a key of
// its own only for the divisor.
void ReadMinistral3(PublishedConfigReader& reader) {
  const PublishedJson rope = reader.json().Object(
      reader.json().Has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  reader.SetFloat("attention.temperature_scale", rope.Float("llama_4_scaling_beta", 0));
}

constexpr PublishedFamily Ministral3() {
  PublishedFamily family = Llama("ministral3", "mistral3");
  family.rope.theta = 1e6;
  family.rope.may_have_log_multiplier = true;
  family.read_config = ReadMinistral3;
  return family;
}

constexpr PublishedModule kSeedOssLayer[] = {
    Norm("input_layernorm", "attn_norm"),
    Linear("self_attn.q_proj", "attn_q"),
    Linear("self_attn.k_proj", "attn_k"),
    Linear("self_attn.v_proj", "attn_v"),
    Linear("self_attn.o_proj", "attn_output"),
    Norm("post_attention_layernorm", "post_attention_norm")};

constexpr PublishedFamily SeedOss() {
  PublishedFamily family = Llama("seed_oss", "seed_oss");
  family.layer = kSeedOssLayer;
  family.interleaves_heads = false;
  return family;
}

// Its published weights rotate adjacent pairs already.
constexpr PublishedFamily Ernie45() {
  PublishedFamily family = Llama("ernie4_5", "ernie4_5");
  family.interleaves_heads = false;
  family.norm_epsilon = 1e-5;
  family.tied_embeddings = true;
  family.rope.theta = 5e5;
  return family;
}

constexpr PublishedFamily SmolLm3() {
  PublishedFamily family = Llama("smollm3", "smollm3");
  family.tied_embeddings = true;
  family.rope.theta = 2e6;
  family.read_config = ReadSmolLm3;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Llama("llama"),
                                         Llama("mistral"),
                                         Llama("sparsellama"),
                                         WithDRelu(Llama("bamboo")),
                                         WithDRelu(Llama("turbosparsemistral")),
                                         Mixtral("mixtral"),
                                         WithDRelu(Mixtral("turbosparsemixtral")),
                                         Ministral3(),
                                         SeedOss(),
                                         Ernie45(),
                                         SmolLm3()};

}  // namespace
}  // namespace published_llama

std::span<const PublishedFamily> PublishedLlamas() { return published_llama::kFamilies; }

}  // namespace hearth
