// ERNIE 4.5 without experts: Llama's graph.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadErnie45(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kAdjacent, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
}

}  // namespace hearth::archs
