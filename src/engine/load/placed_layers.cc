#include "engine/load/placed_layers.h"

#include <algorithm>
#include <span>

namespace hearth {
namespace {

// Norms of a layer, each a vector of the residual stream's width.
int64_t NormVectors(const LayerSpec& layer) {
  const int64_t of_one = layer.norm == NormKind::kLayer ? 2 : 1;
  return (layer.norm_before ? 2 * of_one : 0) + (layer.norm_after ? 2 : 0);
}

class NormUploader {
 public:
  NormUploader(accel::DeviceLayers& layers, const LayerSpec& layer)
      : layers_(layers), layer_(layer) {}

  accel::VectorKernels::Norm Before(const WeightView& weight, const WeightView& bias) {
    if (!layer_.norm_before) return {};
    const bool has_bias = layer_.norm == NormKind::kLayer;
    return {Upload(weight), has_bias ? Upload(bias) : nullptr, layer_.norm_epsilon};
  }
  accel::VectorKernels::Norm After(const WeightView& weight) {
    if (!layer_.norm_after) return {};
    return {Upload(weight), nullptr, layer_.norm_epsilon};
  }

 private:
  accel::DeviceBuffer* Upload(const WeightView& vector) {
    return &layers_.AddVector(
        {reinterpret_cast<const float*>(vector.data), static_cast<size_t>(layers_.shape().hidden)});
  }

  accel::DeviceLayers& layers_;
  const LayerSpec& layer_;
};

}  // namespace

bool IsWhole(const ModelSpec& spec, const MatrixPlacement& placement, size_t layer) {
  const PlacedLayer& placed = placement.layers[layer];
  return placement.kv_tokens > 0 && placed.attention && !placed.experts.empty() &&
         spec.layers[layer].ffn.num_experts == 0;
}

accel::DeviceLayersShape LayersShapeOf(const ModelSpec& spec, const MatrixPlacement& placement,
                                       const DevicePasses& passes) {
  accel::DeviceLayersShape shape = {.max_tokens = passes.max_tokens, .hidden = spec.hidden_size};
  for (size_t l = 0; l < placement.layers.size(); ++l) {
    if (!IsWhole(spec, placement, l)) continue;
    ++shape.layers;
    shape.vector_floats += NormVectors(spec.layers[l]) * spec.hidden_size;
  }
  return shape;
}

std::vector<accel::DeviceWholeLayer> MakeWholeLayers(const Model& model,
                                                     const DeviceWeights& device,
                                                     accel::DeviceLayers& layers) {
  std::vector<accel::DeviceWholeLayer> whole;
  for (size_t l = 0; l < device.layers.size(); ++l) {
    const DeviceLayer& at = device.layers[l];
    if (!at.is_whole()) continue;
    const LayerSpec& spec = model.spec().layers[l];
    const LayerWeights& w = model.weights().layers[l];
    NormUploader norms(layers, spec);
    whole.push_back({.attention = &device.attention_layers[static_cast<size_t>(at.attention)],
                     .ffn = {.gate = device.matrices->At(at.gate),
                             .up = device.matrices->At(at.up),
                             .down = device.matrices->At(at.down),
                             .activation = {spec.ffn.activation, spec.ffn.threshold}},
                     .attention_norm = norms.Before(w.attn_norm, w.attn_norm_bias),
                     .ffn_norm = norms.Before(w.ffn_norm, w.ffn_norm_bias),
                     .after_attention = norms.After(w.attn_after_norm),
                     .after_ffn = norms.After(w.ffn_after_norm),
                     .residual_scale = static_cast<float>(spec.residual_scale),
                     .is_parallel = spec.parallel_attention});
  }
  return whole;
}

}  // namespace hearth
