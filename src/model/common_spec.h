// The part of a ModelSpec that every decoder family states under the same metadata keys.
#pragma once

#include <string_view>

#include "format/gguf.h"
#include "model/model_spec.h"

namespace hearth {

inline constexpr std::string_view kFfnActivationKey = "hearth.ffn_activation";
inline constexpr std::string_view kFfnThresholdKey = "hearth.ffn_threshold";
// float32s, one per layer: for the activation thresholded_silu.
inline constexpr std::string_view kFfnThresholdsKey = "hearth.ffn_thresholds";

// Sizes, RoPE base and scaling, norm epsilon, experts, FFN activation; every layer alike.
// Keys are "<architecture>.<key>". Throws Error for missing or impossible values that the
// reading itself depends on; ValidateSpec checks the rest.
ModelSpec ReadCommonSpec(const GgufFile& file);

// YaRN's own rule for the attention temperature (Peng et al. 2023, equation 22); `multiplier` is a
// model's own on the logarithm. YaRN's frequencies are in pass/math/rope_frequencies.h.
double YarnAttentionFactor(double factor, double multiplier = 1);

// LayerNorms, and FFNs of two matrices without a gate: the layers of models before Llama.
void SetLayerNormsAndTwoMatrixFfns(ModelSpec* spec);
// Rows of position_embd.weight are added to embeddings, and nothing is rotated. Throws
// Error(kCorrupt) where it has other rows than positions, or 2 more in front, as OPT has.
void SetLearnedPositions(const GgufFile& file, ModelSpec* spec);
// Which components rotary embeddings rotate together, in all layers that have them.
void SetRopeLayout(RopeLayout layout, ModelSpec* spec);

// Sets the FFN activation of all layers from hearth.ffn_activation and hearth.ffn_threshold (or, by
// layer, hearth.ffn_thresholds) where the file has them; otherwise to `activation` and `threshold`.
void SetFfnActivation(const GgufFile& file, FfnActivation activation, float threshold,
                      ModelSpec* spec);

}  // namespace hearth
