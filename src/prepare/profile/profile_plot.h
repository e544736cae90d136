// The picture of a profile: how few neurons carry the activations, and where they are.
#pragma once

#include <string>

#include "sparsity/profile.h"

namespace hearth {

// An SVG document of two panels. Left, P1 Figure 4: neurons sorted by activations, the heaviest
// first, against the share of all activations that they carry, a line per layer and one for the
// whole model. Right, P1 Figure 5a: how often neurons are active, sorted in each layer, on a
// logarithmic scale of colours.
// For SiLU, whose neurons are all active always, the left panel takes the share of the output that
// neurons carry and the right one how often gates are over zero; the titles say so.
std::string PlotProfile(const ModelProfile& profile);

}  // namespace hearth
