// Qwen2: Llama's graph with half-split RoPE; most models have biases on q, k and v.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadQwen2(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
}

}  // namespace hearth::archs
