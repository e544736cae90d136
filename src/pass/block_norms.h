// What stands around the attention and the FFN of a layer (LayerSpec): norms, and the scale of what
// they add.
#pragma once

#include <cstdint>

#include "pass/activations.h"
#include "pass/pass_context.h"

namespace hearth {

// The weights of a norm, and the biases of a LayerNorm.
struct NormWeights {
  const WeightView& weight;
  const WeightView& bias;
};

// out = norm(x), of the layer's kind. out may be x.
void Norm(const PassContext& context, const LayerSpec& spec, const NormWeights& weights,
          FloatView x, FloatView out);

// out = what a block reads of the residual x: normed where the layer does that.
void NormInput(const PassContext& context, int64_t layer, const NormWeights& weights, FloatView x,
               FloatView out);

// a.normed = what the block reads of a.hidden.
void NormBefore(const PassContext& context, int64_t layer, const NormWeights& weights,
                const Activations& a);

// a.block_out = what the block adds to a.hidden, of what it computed: normed with `weight` and
// scaled where the layer does that.
void NormAfter(const PassContext& context, int64_t layer, const WeightView& weight,
               const Activations& a);

}  // namespace hearth
