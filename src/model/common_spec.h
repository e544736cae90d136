// The part of a ModelSpec that every decoder family states under the same metadata keys.
#pragma once

#include "format/gguf.h"
#include "model/model_spec.h"

namespace hearth {

// Sizes, RoPE base and scaling, norm epsilon, experts, FFN activation; every layer alike.
// Keys are "<architecture>.<key>". Throws Error for missing or impossible values that the
// reading itself depends on; ValidateSpec checks the rest.
ModelSpec ReadCommonSpec(const GgufFile& file);

// Sets the FFN activation of all layers from hearth.ffn_activation and hearth.ffn_threshold
// where the file has them; otherwise to `activation` and `threshold`.
void SetFfnActivation(const GgufFile& file, FfnActivation activation, float threshold,
                      ModelSpec* spec);

}  // namespace hearth
