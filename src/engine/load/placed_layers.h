// Layers of which everything is on a device: which they are, what they take beside their matrices
// and their attention, and how the device computes them.
#pragma once

#include <cstddef>
#include <vector>

#include "accel/device_layers.h"
#include "engine/load/model.h"
#include "engine/load/placed_attention.h"
#include "pass/device/device_weights.h"
#include "plan/matrix_placement.h"

namespace hearth {

// Whether a placement has all of a layer on the device: attention with its keys and values, and a
// dense FFN.
bool IsWhole(const ModelSpec& spec, const MatrixPlacement& placement, size_t layer);

accel::DeviceLayersShape LayersShapeOf(const ModelSpec& spec, const MatrixPlacement& placement,
                                       const DevicePasses& passes);

// How each layer is computed whose DeviceLayer::whole has a number, by that. Uploads norms.
// `device` has its attention_layers, which must stay where they are; `model` and the device's
// objects must live as long. Throws what the device does.
std::vector<accel::DeviceWholeLayer> MakeWholeLayers(const Model& model,
                                                     const DeviceWeights& device,
                                                     accel::DeviceLayers& layers);

}  // namespace hearth
