// Qwen3: half-split RoPE, an RMS norm on every query and key head.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadQwen3(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  for (LayerSpec& layer : spec->layers) layer.attention.qk_norm = QkNorm::kHeads;
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
}

}  // namespace hearth::archs
