// Phi 3 and 4: q, k and v in one matrix, gate and up in another, as GGUF has them too.
#include "import/archs/published_families.h"
#include "import/hugging_face_config.h"

namespace hearth {
namespace published_phi3 {
namespace {

constexpr PublishedModule kLayer[] = {
    Norm("input_layernorm", "attn_norm"), Linear("self_attn.qkv_proj", "attn_qkv"),
    Linear("self_attn.o_proj", "attn_output"), Norm("post_attention_layernorm", "ffn_norm")};
constexpr PublishedModule kFfn[] = {Linear("mlp.gate_up_proj", "ffn_up"),
                                    Linear("mlp.down_proj", "ffn_down")};

void ReadPhi3(PublishedConfigReader& reader) {
  const PublishedJson& json = reader.json();
  const int64_t context = json.Int("max_position_embeddings");
  reader.Set("rope.scaling.original_context_length",
             json.Int("original_max_position_embeddings", context));
  // Where there is no such key, some readers take a window for granted.
  reader.Set("attention.sliding_window", json.Int("sliding_window", 0));
}

constexpr PublishedFamily Phi3() {
  PublishedFamily family = {.model_type = "phi3",
                            .architecture = "phi3",
                            .top = kUsualTop,
                            .layer = kLayer,
                            .dense = kFfn};
  family.norm_epsilon = 1e-5;
  family.rope.may_be_partial = true;
  family.rope.may_be_long = true;
  family.read_config = ReadPhi3;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Phi3()};

}  // namespace
}  // namespace published_phi3

std::span<const PublishedFamily> PublishedPhis() { return published_phi3::kFamilies; }

}  // namespace hearth
