// gpt-oss: mixtures with biases everywhere and a SwiGLU that is kept within limits, attention
// sinks, and a window in every other layer, the first among them.
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {
namespace {

constexpr float kSwigluLimit = 7;

}  // namespace

void ReadGptOss(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kClampedSwiglu, kSwigluLimit, spec);
  for (size_t l = 0; l < spec->layers.size(); ++l) {
    LayerSpec& layer = spec->layers[l];
    layer.ffn_norm_name = "post_attention_norm";
    layer.attention.sinks = true;
    layer.attention.rope->yarn_whole_ramp = false;
    if (l % 2 == 1) layer.attention.sliding_window = 0;
  }
}

}  // namespace hearth::archs
