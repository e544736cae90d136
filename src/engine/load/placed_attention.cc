#include "engine/load/placed_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "pass/pass_shape.h"

namespace hearth {
namespace {

// A vector of a layer that its attention needs on the device.
struct AttentionVector {
  const WeightView* view = nullptr;
  int64_t floats = 0;  // 0: the model has none
};

enum VectorKind { kQBias, kKBias, kVBias, kOutputBias, kQNorm, kKNorm, kSinks, kNumVectors };

int64_t WidthOfQ(const AttentionSpec& spec) { return spec.num_heads * spec.head_dim; }
int64_t WidthOfKv(const AttentionSpec& spec) { return spec.num_kv_heads * spec.head_dim; }

// Components that are normed by themselves; 0: none are.
int64_t PieceOfNorm(const AttentionSpec& spec, int64_t width) {
  if (spec.qk_norm == QkNorm::kNone) return 0;
  return spec.qk_norm == QkNorm::kHeads ? spec.head_dim : width;
}

std::array<AttentionVector, kNumVectors> VectorsOf(const AttentionSpec& spec, int64_t hidden,
                                                   const LayerWeights& w) {
  const int64_t q = WidthOfQ(spec), kv = WidthOfKv(spec);
  const auto if_has = [](bool has, int64_t floats) { return has ? floats : 0; };
  return {{{&w.attn_q_bias, if_has(spec.qkv_bias, q)},
           {&w.attn_k_bias, if_has(spec.qkv_bias, kv)},
           {&w.attn_v_bias, if_has(spec.qkv_bias, kv)},
           {&w.attn_output_bias, if_has(spec.output_bias, hidden)},
           {&w.attn_q_norm, PieceOfNorm(spec, q)},
           {&w.attn_k_norm, PieceOfNorm(spec, kv)},
           {&w.attn_sinks, if_has(spec.sinks, spec.num_heads)}}};
}

accel::DeviceMatrixAt WithBias(accel::DeviceMatrixAt matrix, accel::DeviceBuffer* bias) {
  matrix.bias = bias;
  return matrix;
}

}  // namespace

std::string WhyNoKvOnDevice(const ModelSpec& spec, KvCodec codec) {
  if (accel::AttentionKernels::Takes(KvLayoutFor(spec, codec))) return "";
  if (accel::AttentionKernels::Takes(KvLayoutFor(spec, KvCodec::kF16))) {
    return fmt::format("devices attend over keys and values in f16 or f32, and not in {}",
                       InfoOf(codec).name);
  }
  return fmt::format("devices attend with heads of at most {} components, and this model's have {}",
                     accel::AttentionKernels::kMostHeadDim, spec.layers.front().attention.head_dim);
}

uint64_t DeviceKvBytesOfLayer(const ModelSpec& spec, KvCodec codec, int64_t tokens) {
  return accel::DeviceAttention::KvBytes(
      {.layout = KvLayoutFor(spec, codec), .layers = 1, .slots = KvLayout::PagesFor(tokens)});
}

accel::DeviceAttentionShape AttentionShapeOf(const ModelSpec& spec,
                                             const MatrixPlacement& placement,
                                             const DevicePasses& passes) {
  accel::DeviceAttentionShape shape = {.layout = KvLayoutFor(spec, passes.kv_codec),
                                       .max_tokens = passes.max_tokens,
                                       .hidden = spec.hidden_size};
  if (placement.kv_tokens == 0) return shape;
  for (size_t l = 0; l < placement.layers.size(); ++l) {
    if (!placement.layers[l].attention) continue;
    ++shape.layers;
    const AttentionSpec& attention = spec.layers[l].attention;
    shape.heads = std::max(shape.heads, attention.num_heads);
    for (const AttentionVector& vector : VectorsOf(attention, spec.hidden_size, LayerWeights())) {
      shape.vector_floats += vector.floats;
    }
  }
  if (shape.layers == 0) return shape;
  shape.slots = KvLayout::PagesFor(placement.kv_tokens);
  for (const RopeSpec& rope : RopesOf(spec)) {
    ++shape.rope_tables;
    shape.rope_pairs = std::max(shape.rope_pairs, rope.dims / 2);
  }
  return shape;
}

std::vector<accel::DeviceAttentionLayer> MakeAttentionLayers(const Model& model,
                                                             const DeviceWeights& device,
                                                             accel::DeviceAttention& attention) {
  const ModelSpec& spec = model.spec();
  const std::vector<RopeSpec> ropes = RopesOf(spec);
  std::vector<accel::DeviceAttentionLayer> layers;
  for (size_t l = 0; l < device.layers.size(); ++l) {
    const DeviceLayer& at = device.layers[l];
    if (!at.attends()) continue;
    const AttentionSpec& of_layer = spec.layers[l].attention;
    std::array<accel::DeviceBuffer*, kNumVectors> vectors = {};
    const auto wanted = VectorsOf(of_layer, spec.hidden_size, model.weights().layers[l]);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].floats == 0) continue;
      vectors[i] = &attention.AddVector({reinterpret_cast<const float*>(wanted[i].view->data),
                                         static_cast<size_t>(wanted[i].floats)});
    }
    accel::DeviceAttentionLayer layer = {
        .number = at.attention,
        .q = WithBias(device.matrices->At(at.q), vectors[kQBias]),
        .k = WithBias(device.matrices->At(at.k), vectors[kKBias]),
        .v = WithBias(device.matrices->At(at.v), vectors[kVBias]),
        .output = WithBias(device.matrices->At(at.attention_output), vectors[kOutputBias]),
        .q_norm = {vectors[kQNorm], PieceOfNorm(of_layer, WidthOfQ(of_layer))},
        .k_norm = {vectors[kKNorm], PieceOfNorm(of_layer, WidthOfKv(of_layer))},
        .norm_epsilon = spec.layers[l].norm_epsilon,
        .scores = {.heads = of_layer.num_heads,
                   .window = of_layer.sliding_window,
                   .scale = static_cast<float>(of_layer.query_scale),
                   .temperature = static_cast<float>(of_layer.temperature_scale),
                   .period = std::max<int64_t>(of_layer.temperature_period, 1),
                   .softcap = static_cast<float>(of_layer.softcap),
                   .sinks = vectors[kSinks]}};
    if (of_layer.rope) {
      layer.rope_table = std::find(ropes.begin(), ropes.end(), *of_layer.rope) - ropes.begin();
      layer.rope_pairs = of_layer.rope->dims / 2;
      layer.rope_layout = of_layer.rope->layout;
    }
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace hearth
