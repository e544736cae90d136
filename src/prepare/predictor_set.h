// Predictors as they are made: in float32, neurons in the order of the source model. `pack` sorts
// and quantizes them (sparsity/predictor.h says what they compute).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/model_spec.h"
#include "sparsity/predictor.h"
#include "tensor/dtype.h"

namespace hearth {

// The predictor of one FFN; rank 0 where none was worth having.
struct MadePredictor {
  int64_t rank = 0;         // a multiple of 32
  std::vector<float> down;  // [rank][hidden]
  std::vector<float> up;    // [neurons][rank]
  std::vector<float> bias;  // [neurons]
  float threshold = 0;
};

struct PredictorSet {
  PredictorInput input = PredictorInput::kFfnInput;
  bool relu = false;
  DType dtype = DType::kQ8_0;  // that down and up are stored in, and that thresholds were set for
  std::vector<MadePredictor> ffns;  // [layer][expert]
};

// FFNs of a layer: its experts, or one.
inline int64_t ExpertsOf(const ModelSpec& model) {
  return std::max<int64_t>(model.layers.front().ffn.num_experts, 1);
}

}  // namespace hearth
