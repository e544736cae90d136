// SmolLM3: Llama's graph, with every fourth layer told no positions.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadSmolLm3(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kAdjacent, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
  for (size_t l = 3; l < spec->layers.size(); l += 4) spec->layers[l].attention.rope.reset();
}

}  // namespace hearth::archs
