// OLMo 2: norms after attention and FFN, none before them, one norm over all query heads and
// one over all key heads.
#include "base/error.h"
#include "model/archs/archs.h"
#include "model/common_spec.h"

namespace hearth::archs {

void ReadOlmo2(const GgufFile& file, ModelSpec* spec) {
  SetRopeLayout(RopeLayout::kHalves, spec);
  SetFfnActivation(file, FfnActivation::kSilu, 0, spec);
  for (LayerSpec& layer : spec->layers) {
    layer.norm_before = false;
    layer.norm_after = true;
    layer.attention.qk_norm = QkNorm::kAllHeads;
    if (layer.attention.sliding_window > 0) {
      throw Error(ErrorCode::kUnsupported, file.path(),
                  "OLMo 3, an olmo2 model with a sliding window, cannot be run yet");
    }
  }
}

}  // namespace hearth::archs
