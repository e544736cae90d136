// GPT-2, whose matrices have their inputs first.
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"

namespace hearth {
namespace published_gpt2 {
namespace {

constexpr PublishedChange kTranspose = PublishedChange::kTranspose;
constexpr PublishedModule kTop[] = {Norm("wte", "token_embd"), Norm("wpe", "position_embd"),
                                    Linear("ln_f", "output_norm")};
constexpr PublishedModule kLayer[] = {
    Linear("ln_1", "attn_norm"), Linear("attn.c_attn", "attn_qkv", kTranspose),
    Linear("attn.c_proj", "attn_output", kTranspose), Linear("ln_2", "ffn_norm")};
constexpr PublishedModule kFfn[] = {Linear("mlp.c_fc", "ffn_up", kTranspose),
                                    Linear("mlp.c_proj", "ffn_down", kTranspose)};
constexpr const char* kDerived[] = {".attn.bias", ".attn.masked_bias"};

void ReadGpt2(PublishedConfigReader& reader) {
  reader.ExpectBool("scale_attn_weights", true, true);
  reader.ExpectBool("scale_attn_by_inverse_layer_idx", false, false);
  reader.ExpectBool("add_cross_attention", false, false);
}

constexpr PublishedFamily Gpt2() {
  PublishedFamily family = {.model_type = "gpt2",
                            .architecture = "gpt2",
                            .words = {"n_embd", "n_layer", "n_head", nullptr, "n_inner",
                                      "n_positions", "layer_norm_epsilon", "activation_function"},
                            .top = kTop,
                            .layer = kLayer,
                            .dense = kFfn};
  family.embedding = "wte";
  family.layers = "h";
  family.has_layer_norms = true;
  family.norm_epsilon = 1e-5;
  family.tied_embeddings = true;
  family.activation = "gelu_new";
  family.rope.has_any = false;
  family.derived = kDerived;
  family.read_config = ReadGpt2;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Gpt2()};

}  // namespace
}  // namespace published_gpt2

std::span<const PublishedFamily> PublishedGpt2s() { return published_gpt2::kFamilies; }

}  // namespace hearth
