// Seed-OSS: Llama's graph with biases of q, k and v and half-split RoPE.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadSeedOss(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
  for (LayerSpec& layer : spec->layers) layer.ffn_norm_name = "post_attention_norm";
}

}  // namespace hearth::archs
