// Predictors before they are packed, neurons in the order of the source model (sparsity/predictor.h
// says what they compute): in float32 while one is made, then quantized as the file will have them,
// which takes a seventh of the memory until all layers are done.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/model_spec.h"
#include "sparsity/predictor.h"
#include "tensor/dtype.h"

namespace hearth {

// Ranks are whole blocks of every type that predictors are stored in.
inline constexpr int64_t kRankUnit = 32;

// The predictor of one FFN; rank 0 where none was worth having.
struct MadePredictor {
  int64_t rank = 0;         // a multiple of kRankUnit
  std::vector<float> down;  // [rank][hidden]
  std::vector<float> up;    // [neurons][rank]
  std::vector<float> bias;  // [neurons]
  float threshold = 0;
};

struct QuantizedPredictor {
  int64_t rank = 0;
  std::vector<std::byte> down;  // [rank] rows of [hidden]
  std::vector<std::byte> up;    // [neurons] rows of [rank]
  std::vector<float> bias;      // [neurons]
  float threshold = 0;
};

// `dtype`: one that kernels::CanQuantize, whose blocks divide the rows.
QuantizedPredictor QuantizePredictor(const MadePredictor& made, DType dtype);

struct PredictorSet {
  PredictorInput input = PredictorInput::kFfnInput;
  bool relu = false;
  DType dtype = DType::kQ8_0;            // of down and up; thresholds were set for it
  std::vector<QuantizedPredictor> ffns;  // [layer][expert]
};

// FFNs of a layer: its experts, or one.
inline int64_t ExpertsOf(const ModelSpec& model) {
  return std::max<int64_t>(MainFfn(model).num_experts, 1);
}

}  // namespace hearth
