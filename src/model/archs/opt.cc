// OPT, whose ReLU leaves out most neurons (P1 §2): learned positions, LayerNorm, FFNs of two
// matrices, biases everywhere. No public converter writes it; names are those of GPT-2's tensors
// with q, k and v apart.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadOpt(const GgufFile& file, ModelSpec* spec) {
  SetLayerNormsAndTwoMatrixFfns(spec);
  SetLearnedPositions(file, spec);
  SetFfnActivation(file, FfnActivation::kRelu, 0, spec);
}

}  // namespace hearth::archs
