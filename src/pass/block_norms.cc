#include "pass/block_norms.h"

#include "ops/elementwise.h"

namespace hearth {

void NormBefore(const PassContext& context, int64_t layer, const WeightView& weight,
                const Activations& a) {
  const LayerSpec& spec = context.layer(layer);
  if (spec.norm_before) {
    RmsNorm(context.compute, a.hidden, FloatsOf(weight), spec.norm_epsilon, a.normed);
  } else {
    Copy(context.compute, a.hidden, a.normed);
  }
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
