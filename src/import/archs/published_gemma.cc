// Gemma 2 and 3: norms whose weights are stored less one, around attention and FFN.
#include "base/error.h"
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"

namespace hearth {
namespace published_gemma {
namespace {

constexpr PublishedChange kAddOne = PublishedChange::kAddOne;
constexpr PublishedModule kTop[] = {Norm("embed_tokens", "token_embd"),
                                    Norm("norm", "output_norm", kAddOne)};
constexpr PublishedModule kLayer[] = {
    Norm("input_layernorm", "attn_norm", kAddOne),
    Linear("self_attn.q_proj", "attn_q"),
    Linear("self_attn.k_proj", "attn_k"),
    Linear("self_attn.v_proj", "attn_v"),
    Linear("self_attn.o_proj", "attn_output"),
    Norm("post_attention_layernorm", "post_attention_norm", kAddOne),
    Norm("pre_feedforward_layernorm", "ffn_norm", kAddOne),
    Norm("post_feedforward_layernorm", "post_ffw_norm", kAddOne)};
constexpr PublishedModule kLayerWithNormedHeads[] = {
    Norm("input_layernorm", "attn_norm", kAddOne),
    Linear("self_attn.q_proj", "attn_q"),
    Linear("self_attn.k_proj", "attn_k"),
    Linear("self_attn.v_proj", "attn_v"),
    Linear("self_attn.o_proj", "attn_output"),
    Norm("self_attn.q_norm", "attn_q_norm", kAddOne),
    Norm("self_attn.k_norm", "attn_k_norm", kAddOne),
    Norm("post_attention_layernorm", "post_attention_norm", kAddOne),
    Norm("pre_feedforward_layernorm", "ffn_norm", kAddOne),
    Norm("post_feedforward_layernorm", "post_ffw_norm", kAddOne)};

constexpr int64_t kPeriodOfGemma3 = 6;

// Scores are divided by the root of a head's size, and in the largest models, which GGUF's readers
// know by their layers, of hidden / heads.
void ReadQueryScale(PublishedConfigReader& reader, int64_t layers_of_27b) {
  const PublishedConfig& config = reader.out();
  const bool is_27b = config.num_layers == layers_of_27b;
  const int64_t scalar = is_27b ? config.hidden_size / config.num_heads : config.head_dim;
  reader.ExpectFloat("query_pre_attn_scalar", static_cast<double>(scalar), 256);
}

void ReadGemma2(PublishedConfigReader& reader) {
  ReadQueryScale(reader, 46);
  reader.SetFloat("attn_logit_softcapping", reader.Obeyed("attn_logit_softcapping", 50));
  reader.SetFloat("final_logit_softcapping", reader.Obeyed("final_logit_softcapping", 30));
}

void ReadGemma3(PublishedConfigReader& reader) {
  ReadQueryScale(reader, 62);
  reader.ExpectInt("sliding_window_pattern", kPeriodOfGemma3);
  reader.ExpectInt("_sliding_window_pattern", kPeriodOfGemma3);
}

constexpr PublishedFamily Gemma(const char* model_type, const char* architecture,
                                std::span<const PublishedModule> layer) {
  PublishedFamily family = {.model_type = model_type,
                            .architecture = architecture,
                            .top = kTop,
                            .layer = layer,
                            .dense = kUsualFfn};
  family.words.activation = "hidden_activation";
  family.activation = "gelu_pytorch_tanh";
  family.tied_embeddings = true;
  family.sliding_window = 4096;
  return family;
}

constexpr PublishedFamily Gemma2() {
  PublishedFamily family = Gemma("gemma2", "gemma2", kLayer);
  family.has_window = [](int64_t layer) { return layer % 2 == 0; };
  family.read_config = ReadGemma2;
  return family;
}

constexpr PublishedFamily Gemma3() {
  PublishedFamily family = Gemma("gemma3_text", "gemma3", kLayerWithNormedHeads);
  family.has_window = [](int64_t layer) { return layer % kPeriodOfGemma3 != kPeriodOfGemma3 - 1; };
  family.defaults = R"({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
                        "max_position_embeddings": 131072, "vocab_size": 262208})";
  family.rope.theta = 1e6;
  family.rope.local_theta = 10000;
  family.read_config = ReadGemma3;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Gemma2(), Gemma3()};

}  // namespace
}  // namespace published_gemma

std::span<const PublishedFamily> PublishedGemmas() { return published_gemma::kFamilies; }

}  // namespace hearth
