// SmallThinker: mixtures of ReGLU experts, whose routers read what a layer begins with. Models for
// long contexts have a window in most layers, and tell the others no positions instead. Files say
// how wide windows are, and not which layers have one.
#include "base/error.h"
#include "model/arch_keys.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {
namespace {

// The first layer of every four sees all tokens, in models with windows.
constexpr size_t kPeriod = 4;

}  // namespace

void ReadSmallThinker(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kRelu, 0, spec);
  if (MainFfn(*spec).num_experts == 0) {
    throw Error(ErrorCode::kCorrupt, file.path(), "smallthinker.expert_count", "at least 1",
                "none");
  }
  ArchKeys(file).Int("expert_gating_func");  // nothing may be taken for granted here
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    AttentionSpec& attention = spec->layers[l].attention;
    if (attention.sliding_window > 0 && l % kPeriod == 0) {
      attention.sliding_window = 0;
      attention.rope.reset();
    }
    FfnSpec& ffn = spec->layers[l].ffn;
    ffn.routes_before_attention = ffn.num_experts > 0;
  }
}

}  // namespace hearth::archs
