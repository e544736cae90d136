// OLMo 2: norms after attention and FFN only, and norms of all heads of q and k at once.
#include "import/archs/published_families.h"

namespace hearth {
namespace published_olmo2 {
namespace {

constexpr PublishedModule kLayer[] = {Linear("self_attn.q_proj", "attn_q"),
                                      Linear("self_attn.k_proj", "attn_k"),
                                      Linear("self_attn.v_proj", "attn_v"),
                                      Linear("self_attn.o_proj", "attn_output"),
                                      Norm("self_attn.q_norm", "attn_q_norm"),
                                      Norm("self_attn.k_norm", "attn_k_norm"),
                                      Norm("post_attention_layernorm", "post_attention_norm"),
                                      Norm("post_feedforward_layernorm", "post_ffw_norm")};

constexpr PublishedFamily Olmo2() {
  PublishedFamily family = {.model_type = "olmo2",
                            .architecture = "olmo2",
                            .top = kUsualTop,
                            .layer = kLayer,
                            .dense = kUsualFfn};
  family.norm_epsilon = 1e-5;
  return family;
}

constexpr PublishedFamily kFamilies[] = {Olmo2()};

}  // namespace
}  // namespace published_olmo2

std::span<const PublishedFamily> PublishedOlmos() { return published_olmo2::kFamilies; }

}  // namespace hearth
