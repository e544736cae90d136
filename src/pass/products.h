// Products of a pass with matrices that are in memory or on a device.
#pragma once

#include <cstdint>
#include <span>

#include "ops/linear.h"
#include "pass/pass_context.h"

namespace hearth {

// Computes all products of the context's input, as MatMul does; on_device: where the matrix of each
// is on the context's device, or empty ones of them all. Throws what the device does.
void Multiply(const PassContext& context, int64_t layer, std::span<const Product> products,
              std::span<const accel::DeviceMatrixAt> on_device);

}  // namespace hearth
