// Predictors as pack writes them: neurons in the order of the bundles, matrices quantized. Internal
// to prepare/.
#pragma once

#include <cstdint>
#include <vector>

#include "format/gguf.h"
#include "model/model_spec.h"
#include "prepare/pack/pack_plan.h"
#include "prepare/predict/predictor_set.h"

namespace hearth {

// Throws Error(kInvalidArgument), naming what is wrong, for a set that is not of this model's shape
// or whose type cannot be stored.
void CheckPredictors(const PredictorSet& set, const ModelSpec& spec);

// Sets the keys of sparsity/predictor.h.
void SetPredictorMetadata(const PredictorSet& set, GgufMetadata* metadata);

// The tensors of one layer: down, up and bias, or nothing where no expert of it has a predictor.
// Experts share the largest rank of the layer; missing rows and columns are zeros. An expert
// without a predictor gets zeros and a threshold (SetPredictorMetadata) that every neuron passes.
// The tensors keep pointers to `set` and `layer`.
std::vector<PackedTensor> PackPredictor(const PredictorSet& set, const PackedLayer& layer,
                                        int64_t hidden);

}  // namespace hearth
