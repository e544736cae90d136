// Qwen2 with experts in every layer and, beside them, an FFN that runs for every token, weighed
// by a gate of its own. The weights of the chosen experts stay as the softmax over all gave them.
#include "base/error.h"
#include "model/arch_keys.h"
#include "model/archs/archs.h"

namespace hearth::archs {

void ReadQwen2Moe(const GgufFile& file, ModelSpec* spec) {
  ReadQwen2(file, spec);
  const ArchKeys keys(file);
  for (LayerSpec& layer : spec->layers) {
    if (layer.ffn.num_experts == 0) {
      throw Error(ErrorCode::kCorrupt, file.path(), keys.Name("expert_count"), "at least 1",
                  "none");
    }
    layer.ffn.normalize_expert_weights = keys.Bool("expert_weights_norm", false);
  }
}

}  // namespace hearth::archs
