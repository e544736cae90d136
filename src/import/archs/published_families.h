// What families look like as published: the keys of their config.json, their modules' names under
// transformers and in GGUF, and how their weights lie. One file per family in this folder, one line
// in published_families.cc. Internal to prepare/.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace hearth {

class PublishedConfigReader;
class PublishedTensors;
struct PublishedConfig;

// How the published rows or numbers of a module differ from GGUF's.
enum class PublishedChange : uint8_t {
  kNone,
  kQueries,    // heads of q, which GGUF may rotate by neighbouring rows
  kKeys,       // and those of k
  kAddOne,     // the weights of a norm are stored less one
  kTranspose,  // inputs come first
  kQkvGroups,  // of every key head: its queries, its key, its value
};

// A module, with a weight and, where it is said and the folder has it, a bias.
struct PublishedModule {
  const char* published;
  const char* gguf;
  PublishedChange change = PublishedChange::kNone;
  bool may_have_bias = false;
  bool is_optional = false;
};
constexpr PublishedModule Norm(const char* published, const char* gguf,
                               PublishedChange change = PublishedChange::kNone) {
  return {published, gguf, change, false, false};
}
constexpr PublishedModule Linear(const char* published, const char* gguf,
                                 PublishedChange change = PublishedChange::kNone) {
  return {published, gguf, change, true, false};
}
constexpr PublishedModule Optional(PublishedModule module) {
  module.is_optional = true;
  return module;
}

// The experts of a layer, one module for each part of each: "<experts>.<number>.<part>".
struct PublishedExperts {
  const char* experts;
  const char* parts[3];               // gate, up, down
  bool normalizes = true;             // where config.json does not say
  const char* count = "num_experts";  // keys of config.json
  const char* per_token = "num_experts_per_tok";
  const char* size = "moe_intermediate_size";
};

// Keys of config.json. Null for what the family does not say.
struct PublishedWords {
  const char* hidden_size = "hidden_size";
  const char* num_layers = "num_hidden_layers";
  const char* num_heads = "num_attention_heads";
  const char* num_kv_heads = "num_key_value_heads";
  const char* intermediate_size = "intermediate_size";
  const char* context_length = "max_position_embeddings";
  const char* norm_epsilon = "rms_norm_eps";
  const char* activation = "hidden_act";
};

// Rotary embeddings, and what holds where config.json is silent.
struct PublishedRope {
  bool has_any = true;
  double theta = 10000;
  bool may_be_partial = false;  // a part of a head is rotated
  double partial = 1;
  bool may_be_long = false;  // LongRoPE
  double local_theta = 0;    // of layers with a window, where they have a base of their own
  bool may_have_log_multiplier = false;  // YaRN's `mscale_all_dim`
  bool has_whole_ramp = true;            // YaRN's `truncate`
};

inline constexpr const char* kUsualDerived[] = {".rotary_emb.inv_freq"};

struct PublishedFamily {
  const char* model_type;
  const char* architecture;  // in GGUF
  PublishedWords words = {};
  std::span<const PublishedModule> top;      // "model.<module>"
  std::span<const PublishedModule> layer;    // of every layer
  std::span<const PublishedModule> dense;    // of layers with one FFN
  std::span<const PublishedModule> mixture;  // of layers with experts, beside them
  const PublishedExperts* experts = nullptr;
  const char* embedding = "embed_tokens";
  const char* layers = "layers";
  // GGUF rotates neighbouring rows of q and k, the published file rows half a head apart.
  bool interleaves_heads = false;
  bool has_layer_norms = false;  // and not RMS norms
  double norm_epsilon = 1e-6;    // where config.json does not say, as all below
  bool tied_embeddings = false;
  const char* activation = "silu";
  bool obeys_activation = true;  // and not the one above, whatever config.json says
  PublishedRope rope = {};
  int64_t sliding_window = 0;
  int64_t context_length = 0;  // 0: config.json must say
  // Whether a layer has a window, in families that mix layers; null where all are alike.
  bool (*has_window)(int64_t layer) = nullptr;
  // Sizes of models whose config.json leaves them out, as JSON.
  const char* defaults = "{}";
  // Tensors that follow from others, by what their names end with.
  std::span<const char* const> derived = kUsualDerived;
  // Reads what this family alone says, and refuses what GGUF cannot say of it.
  void (*read_config)(PublishedConfigReader& reader) = nullptr;
  // Takes tensors that no table above can describe: of a layer whose names begin with `from`, to
  // names that begin with `to`; of all layers when the others are taken.
  void (*take_layer)(PublishedTensors& tensors, const std::string& from,
                     const std::string& to) = nullptr;
  void (*take_rest)(PublishedTensors& tensors, PublishedConfig* config) = nullptr;
};

// What most families since Llama share.
inline constexpr PublishedModule kUsualTop[] = {Norm("embed_tokens", "token_embd"),
                                                Norm("norm", "output_norm")};
inline constexpr PublishedModule kUsualLayer[] = {
    Norm("input_layernorm", "attn_norm"),
    Linear("self_attn.q_proj", "attn_q", PublishedChange::kQueries),
    Linear("self_attn.k_proj", "attn_k", PublishedChange::kKeys),
    Linear("self_attn.v_proj", "attn_v"),
    Linear("self_attn.o_proj", "attn_output"),
    Norm("post_attention_layernorm", "ffn_norm")};
// With norms of every head of q and k.
inline constexpr PublishedModule kLayerWithHeadNorms[] = {
    Norm("input_layernorm", "attn_norm"),
    Linear("self_attn.q_proj", "attn_q", PublishedChange::kQueries),
    Linear("self_attn.k_proj", "attn_k", PublishedChange::kKeys),
    Linear("self_attn.v_proj", "attn_v"),
    Linear("self_attn.o_proj", "attn_output"),
    Norm("self_attn.q_norm", "attn_q_norm"),
    Norm("self_attn.k_norm", "attn_k_norm"),
    Norm("post_attention_layernorm", "ffn_norm")};
inline constexpr PublishedModule kUsualFfn[] = {Linear("mlp.gate_proj", "ffn_gate"),
                                                Linear("mlp.up_proj", "ffn_up"),
                                                Linear("mlp.down_proj", "ffn_down")};
inline constexpr PublishedModule kUsualRouter[] = {Norm("mlp.gate", "ffn_gate_inp")};

// The families of each file.
std::span<const PublishedFamily> PublishedLlamas();  // with Mistral, Mixtral, Bamboo, SmolLM3
std::span<const PublishedFamily> PublishedQwens();
std::span<const PublishedFamily> PublishedGemmas();
std::span<const PublishedFamily> PublishedPhis();
std::span<const PublishedFamily> PublishedOlmos();
std::span<const PublishedFamily> PublishedGranites();
std::span<const PublishedFamily> PublishedGlms();
std::span<const PublishedFamily> PublishedGptOss();
std::span<const PublishedFamily> PublishedSmallThinkers();
std::span<const PublishedFamily> PublishedGpt2s();
std::span<const PublishedFamily> PublishedOpts();
std::span<const PublishedFamily> PublishedFalcons();

// The family of a `model_type`; null where there is none. `known` lists all, for messages.
const PublishedFamily* FindPublishedFamily(const std::string& model_type);
std::string KnownPublishedFamilies();
// Calls fn for every family whose models have this architecture in GGUF.
void ForFamiliesOf(const std::string& architecture,
                   const std::function<void(const PublishedFamily& family)>& fn);

}  // namespace hearth
