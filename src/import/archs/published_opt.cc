// OPT, under the names of src/model/archs/opt.cc: no public converter writes it.
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"

namespace hearth {
namespace published_opt {
namespace {

constexpr PublishedModule kTop[] = {Norm("embed_tokens", "token_embd"),
                                    Norm("embed_positions", "position_embd"),
                                    Linear("final_layer_norm", "output_norm")};
constexpr PublishedModule kLayer[] = {
    Linear("self_attn_layer_norm", "attn_norm"), Linear("self_attn.q_proj", "attn_q"),
    Linear("self_attn.k_proj", "attn_k"),        Linear("self_attn.v_proj", "attn_v"),
    Linear("self_attn.out_proj", "attn_output"), Linear("final_layer_norm", "ffn_norm")};
constexpr PublishedModule kFfn[] = {Linear("fc1", "ffn_up"), Linear("fc2", "ffn_down")};

void ReadOpt(PublishedConfigReader& reader) {
  reader.ExpectBool("do_layer_norm_before", true, true);
  reader.ExpectBool("_remove_final_layer_norm", false, false);
  reader.ExpectInt("word_embed_proj_dim", reader.out().hidden_size);
}

constexpr PublishedFamily Opt() {
  PublishedFamily family = {
      .model_type = "opt", .architecture = "opt", .top = kTop, .layer = kLayer, .dense = kFfn};
  family.words.num_kv_heads = nullptr;
  family.words.intermediate_size = "ffn_dim";
  family.words.norm_epsilon = nullptr;
  family.words.activation = "activation_function";
  family.has_layer_norms = true;
  family.norm_epsilon = 1e-5;
  family.tied_embeddings = true;
  family.activation = "relu";
  family.rope.has_any = false;
  family.read_config = ReadOpt;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Opt()};

}  // namespace
}  // namespace published_opt

std::span<const PublishedFamily> PublishedOpts() { return published_opt::kFamilies; }

}  // namespace hearth
