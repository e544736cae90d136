// SmallThinker: mixtures of ReGLU experts, whose routers read what a layer begins with. Models for
// long contexts have a window in most layers, and tell the others no positions instead. Files say
// how wide windows are, and not which layers have one.
#include "model/archs/smallthinker.h"

#include "base/error.h"
#include "model/arch_keys.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth {

void SetSmallThinkerLayers(ModelSpec* spec) {
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    AttentionSpec& attention = spec->layers[l].attention;
    if (attention.sliding_window > 0 && l % kSmallThinkerPeriod == 0) {
      attention.sliding_window = 0;
      attention.rope.reset();
    }
    FfnSpec& ffn = spec->layers[l].ffn;
    ffn.routes_before_attention = ffn.num_experts > 0;
  }
}

namespace archs {

void ReadSmallThinker(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kRelu, 0, spec);
  if (MainFfn(*spec).num_experts == 0) {
    throw Error(ErrorCode::kCorrupt, file.path(), "smallthinker.expert_count", "at least 1",
                "none");
  }
  ArchKeys(file).Int("expert_gating_func");  // nothing may be taken for granted here
  SetSmallThinkerLayers(spec);
}

}  // namespace archs
}  // namespace hearth
