// What files of SmallThinker leave to their readers: which layers have windows and rotate.
#pragma once

#include <cstddef>

#include "model/model_spec.h"

namespace hearth {

// In models with windows the first layer of every four sees all tokens and rotates nothing.
inline constexpr size_t kSmallThinkerPeriod = 4;

// Sets the layers of a spec whose layers are all alike: routers of mixtures read what the layer
// begins with, and the layers that see all lose their windows and their rotation.
void SetSmallThinkerLayers(ModelSpec* spec);

}  // namespace hearth
