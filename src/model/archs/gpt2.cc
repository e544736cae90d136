// GPT-2: learned positions, LayerNorm, FFNs of two matrices with GELU, q, k and v in one matrix.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadGpt2(const GgufFile& file, ModelSpec* spec) {
  SetLayerNormsAndTwoMatrixFfns(spec);
  SetLearnedPositions(file, spec);
  SetFfnActivation(file, FfnActivation::kGelu, 0, spec);
}

}  // namespace hearth::archs
