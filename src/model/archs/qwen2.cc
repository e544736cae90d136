// Qwen2: Llama's graph with biases on q, k and v and half-split RoPE.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadQwen2(const GgufFile& file, ModelSpec* spec) {
  spec->rope.layout = RopeLayout::kHalves;
  for (LayerSpec& layer : spec->layers) layer.attention.qkv_bias = true;
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
}

}  // namespace hearth::archs
