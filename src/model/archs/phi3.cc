// Phi 3 and 4: Llama's graph with q, k and v in one matrix, gate and up in another, half-split RoPE
// over all of a head or a part of it, and LongRoPE in models for long contexts.
#include "model/arch_keys.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadPhi3(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
  const bool is_long = file.FindShape("rope_factors_long.weight").has_value();
  for (LayerSpec& layer : spec->layers) {
    layer.ffn.fused_gate_up = true;
    if (is_long) {
      // Not all converters write its type.
      layer.attention.rope->scaling = RopeScalingKind::kLong;
      layer.attention.rope->factor = 1;
      layer.attention.rope->attention_factor = ArchKeys(file).Float("rope.scaling.attn_factor", 1);
    }
  }
}

}  // namespace hearth::archs
