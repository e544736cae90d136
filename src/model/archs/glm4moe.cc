// GLM 4.5 to 4.7: dense layers first, then mixtures whose routers take sigmoids; a part of a head
// rotated.
#include "model/arch_keys.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadGlm4Moe(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
  const bool has_qk_norm = file.FindShape("blk.0.attn_q_norm.weight").has_value();
  const bool says_score = ArchKeys(file).Has("expert_gating_func");
  for (LayerSpec& layer : spec->layers) {
    layer.ffn_norm_name = "post_attention_norm";
    if (has_qk_norm) layer.attention.qk_norm = QkNorm::kHeads;
    if (!says_score) layer.ffn.router_score = RouterScore::kSigmoid;
  }
}

}  // namespace hearth::archs
