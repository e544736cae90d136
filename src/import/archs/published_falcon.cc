// Falcon: q, k and v in one matrix, sorted by key head as published and by kind in GGUF.
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"

namespace hearth {
namespace published_falcon {
namespace {

constexpr PublishedModule kTop[] = {Norm("word_embeddings", "token_embd"),
                                    Linear("ln_f", "output_norm")};
// One norm for attention and FFN, or one for each.
constexpr PublishedModule kLayer[] = {
    Optional(Linear("input_layernorm", "attn_norm")), Optional(Linear("ln_mlp", "attn_norm")),
    Optional(Linear("ln_attn", "attn_norm_2")),
    Linear("self_attention.query_key_value", "attn_qkv", PublishedChange::kQkvGroups),
    Linear("self_attention.dense", "attn_output")};
constexpr PublishedModule kFfn[] = {Linear("mlp.dense_h_to_4h", "ffn_up"),
                                    Linear("mlp.dense_4h_to_h", "ffn_down")};

void ReadFalcon(PublishedConfigReader& reader) {
  const PublishedJson& json = reader.json();
  reader.ExpectBool("alibi", false, false);
  PublishedConfig& out = reader.out();
  const bool is_new = json.Bool("new_decoder_architecture", false);
  if (!is_new) reader.ExpectBool("parallel_attn", true, true);
  // Only newer models obey the number.
  out.num_kv_heads = is_new                           ? json.Int("num_kv_heads", out.num_heads)
                     : json.Bool("multi_query", true) ? 1
                                                      : out.num_heads;
  reader.Set("attention.head_count_kv", out.num_kv_heads);
  reader.SetString("tensor_data_layout", "jploski");  // the order that kQkvGroups makes
}

constexpr PublishedFamily Falcon() {
  PublishedFamily family = {.model_type = "falcon",
                            .architecture = "falcon",
                            .top = kTop,
                            .layer = kLayer,
                            .dense = kFfn};
  family.words.num_kv_heads = nullptr;
  family.words.intermediate_size = "ffn_hidden_size";
  family.words.norm_epsilon = "layer_norm_epsilon";
  family.words.activation = "activation";
  family.embedding = "word_embeddings";
  family.layers = "h";
  family.context_length = 2048;
  family.has_layer_norms = true;
  family.norm_epsilon = 1e-5;
  family.tied_embeddings = true;
  family.activation = "gelu";
  family.read_config = ReadFalcon;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Falcon()};

}  // namespace
}  // namespace published_falcon

std::span<const PublishedFamily> PublishedFalcons() { return published_falcon::kFamilies; }

}  // namespace hearth
