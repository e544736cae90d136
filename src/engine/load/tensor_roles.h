// The matrices of a load plan by what they are for.
#pragma once

#include <array>
#include <cstddef>
#include <map>

#include "engine/load/model.h"

namespace hearth {

// Null where a model has no such matrix. The plan must live as long.
class TensorRoles {
 public:
  explicit TensorRoles(const LoadPlan& plan) : plan_(plan) {
    for (const ResidentTensor& tensor : plan.tensors) by_slot_[tensor.decl.slot] = &tensor;
  }
  const ResidentTensor* Find(const WeightView& slot) const {
    const auto found = by_slot_.find(&slot);
    return found == by_slot_.end() ? nullptr : found->second;
  }
  const LayerWeights& layer(size_t index) const { return plan_.weights->layers[index]; }

  std::array<const ResidentTensor*, 4> Attention(size_t layer_index) const {
    const LayerWeights& w = layer(layer_index);
    return {Find(w.attn_q), Find(w.attn_k), Find(w.attn_v), Find(w.attn_output)};
  }
  // Gate (null of two matrices), up, down.
  std::array<const ResidentTensor*, 3> Ffn(size_t layer_index) const {
    const LayerWeights& w = layer(layer_index);
    return {Find(w.ffn_gate), Find(w.ffn_up), Find(w.ffn_down)};
  }
  std::array<const ResidentTensor*, 3> Shared(size_t layer_index) const {
    const LayerWeights& w = layer(layer_index);
    return {Find(w.shared_gate), Find(w.shared_up), Find(w.shared_down)};
  }
  // Down, up, and the biases of up; null where the layer has no predictor.
  std::array<const ResidentTensor*, 3> Predictor(size_t layer_index) const {
    if (!plan_.predictors) return {};
    const ModelPredictors::Layer& of_layer = plan_.predictors->layers[layer_index];
    return {Find(of_layer.down), Find(of_layer.up), Find(of_layer.bias)};
  }
  // Null where the output matrix is the embedding: rows of that are looked up on the processor.
  const ResidentTensor* Output() const {
    return plan_.spec.tied_embeddings ? nullptr : Find(plan_.weights->output);
  }

 private:
  const LoadPlan& plan_;
  std::map<const WeightView*, const ResidentTensor*> by_slot_;
};

}  // namespace hearth
