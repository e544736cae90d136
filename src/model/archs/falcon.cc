// Falcon: attention and FFN side by side, LayerNorm, FFNs of two matrices with GELU, few key and
// value heads. The larger ones have a norm for each of the two.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadFalcon(const GgufFile& file, ModelSpec* spec) {
  SetLayerNormsAndTwoMatrixFfns(spec);
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kGeluErf, 0, spec);
  const bool has_two_norms = file.FindShape("blk.0.attn_norm_2.weight").has_value();
  for (LayerSpec& layer : spec->layers) {
    layer.parallel_attention = true;
    layer.attention_norm_name = has_two_norms ? "attn_norm_2" : "attn_norm";
    layer.ffn_norm_name = "attn_norm";
  }
}

}  // namespace hearth::archs
