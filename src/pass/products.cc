#include "pass/products.h"

#include <array>

#include "base/error.h"
#include "ops/elementwise.h"

namespace hearth {

void Multiply(const PassContext& context, int64_t layer, std::span<const Product> products,
              std::span<const accel::DeviceMatrixAt> on_device) {
  if (on_device.front().empty()) return MatMul(context.compute, products, context.input);
  std::array<accel::DeviceProduct, 4> sent;
  if (products.size() > sent.size()) throw Error(ErrorCode::kInternal, "Multiply", "many products");
  for (size_t i = 0; i < products.size(); ++i) sent[i] = {on_device[i], products[i].out};
  accel::DeviceMatrices& device = *context.device->matrices;
  device.SetLayer(layer);
  try {
    device.Multiply(context.input.x(), {sent.data(), products.size()});
    device.Wait();
  } catch (...) {
    device.Abandon();
    throw;
  }
  for (const Product& product : products) {
    if (product.bias != nullptr) AddToRows(context.compute, product.out, product.bias);
  }
}

}  // namespace hearth
