// Which neurons of an FFN need no up and no down: decided by their gates alone.
#pragma once

#include <limits>

#include "tensor/op_kinds.h"

namespace hearth {

// True where a neuron whose gate does not fire adds nothing, so that it may be left out.
bool CanSkipNeurons(FfnActivation activation);

// Gates that do not fire: all up to `below`, and, under a thresholded SiLU, those between `from`
// and `to` around zero (below the first, SiLU comes back to zero). A gate that is not a number
// fires, so that it shows in the result.
struct SilentGates {
  float below;
  float from;
  float to;

  bool Contains(float gate) const { return gate <= below || (gate >= from && gate <= to); }
};

// Contains no gate: nothing is at most what is no number.
inline constexpr SilentGates kNoSilentGates = {std::numeric_limits<float>::quiet_NaN(),
                                               std::numeric_limits<float>::quiet_NaN(),
                                               std::numeric_limits<float>::quiet_NaN()};

// Of an activation; threshold is used by kFatRelu and kThresholdedSilu only, and not negative for
// the latter. Exact for the ReLU family. For a thresholded SiLU the bounds leave a thousandth of
// the threshold to the kernels' rounding: what they contain surely gives zero, and a gate just
// outside may do so too, which the product then shows.
SilentGates SilentGatesOf(FfnActivation activation, float threshold);

}  // namespace hearth
