// Frequencies of rotary position embeddings (RoPE), with linear scaling and YaRN; the factors of
// LongRoPE and Llama 3 come with the weights. YaRN's temperature is YarnAttentionFactor in
// model/common_spec.h.
#pragma once

#include <span>
#include <vector>

#include "model/model_spec.h"

namespace hearth {

// Radians per position for each of the dims/2 rotated pairs. `factors` divides the frequencies
// (Llama 3's rope_freqs.weight); empty where the model has none.
std::vector<double> RopeFrequencies(const RopeSpec& rope, std::span<const float> factors);

}  // namespace hearth
