// GLM 4 (0414): norms before and after attention and FFN, gate and up in one matrix, and adjacent
// pairs of half of a head rotated.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadGlm4(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kAdjacent, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
  for (LayerSpec& layer : spec->layers) {
    layer.norm_after = true;
    layer.ffn.fused_gate_up = true;
  }
}

}  // namespace hearth::archs
