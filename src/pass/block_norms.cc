#include "pass/block_norms.h"

#include "ops/elementwise.h"

namespace hearth {

void Norm(const PassContext& context, const LayerSpec& spec, const NormWeights& weights,
          FloatView x, FloatView out) {
  if (spec.norm == NormKind::kLayer) {
    LayerNorm(context.compute, x, FloatsOf(weights.weight), FloatsOf(weights.bias),
              spec.norm_epsilon, out);
  } else {
    RmsNorm(context.compute, x, FloatsOf(weights.weight), spec.norm_epsilon, out);
  }
}

void NormInput(const PassContext& context, int64_t layer, const NormWeights& weights, FloatView x,
               FloatView out) {
  const LayerSpec& spec = context.layer(layer);
  if (spec.norm_before) {
    Norm(context, spec, weights, x, out);
  } else {
    Copy(context.compute, x, out);
  }
}

void NormBefore(const PassContext& context, int64_t layer, const NormWeights& weights,
                const Activations& a) {
  NormInput(context, layer, weights, a.hidden, a.normed);
  context.seam.After(PassOp::kNorm);
}

void NormAfter(const PassContext& context, int64_t layer, const WeightView& weight,
               const Activations& a) {
  const LayerSpec& spec = context.layer(layer);
  if (spec.norm_after) {
    RmsNorm(context.compute, a.block_out, FloatsOf(weight), spec.norm_epsilon, a.block_out);
    context.seam.After(PassOp::kNorm);
  }
  if (spec.residual_scale != 1) {
    Scale(context.compute, a.block_out, static_cast<float>(spec.residual_scale));
  }
}

}  // namespace hearth
