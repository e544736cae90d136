// Granite 3 and 4 without recurrent layers: Llama's graph, with embeddings, queries, residuals and
// logits scaled by numbers of the file; granitemoe has experts.
#include "model/arch_keys.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadGranite(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kAdjacent, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
  // What logits are divided by.
  spec->logit_scale = 1 / ArchKeys(file).Float("logit_scale", 1);
}

}  // namespace hearth::archs
