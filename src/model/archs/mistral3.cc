// Mistral 3 (Ministral 3 and later): Llama's graph with YaRN, whose queries grow with the position.
#include "model/arch_keys.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadMistral3(const GgufFile& file, ModelSpec* spec) {
  const ArchKeys keys(file);
  SetRopeLayout(RopeLayout::kAdjacent, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
  for (LayerSpec& layer : spec->layers) {
    RopeSpec& rope = *layer.attention.rope;
    // YaRN's own factor for scores is divided by another, which is the same where this is 1.
    if (rope.scaling == RopeScalingKind::kYarn) {
      rope.attention_factor /=
          YarnAttentionFactor(rope.factor, keys.Float("rope.scaling.yarn_log_multiplier", 0));
    }
    layer.attention.temperature_scale = keys.Float("attention.temperature_scale", 0);
    layer.attention.temperature_period = rope.original_context;
  }
}

}  // namespace hearth::archs
