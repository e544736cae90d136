// The three ways to compute an FFN.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hearth {

// The numbers are those of packed files (hearth.ffn_mode).
enum class FfnMode : uint8_t {
  kDense,      // every neuron
  kGated,      // every gate; up and down of neurons whose gate fires: the same result
  kPredicted,  // only neurons that the layer's predictor expects to fire: approximate
};

const char* FfnModeName(FfnMode mode);  // "dense", "gated", "predicted"
std::optional<FfnMode> FfnModeFromName(std::string_view name);

}  // namespace hearth
