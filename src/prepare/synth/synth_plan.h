// What a synthesized file contains: metadata, tensors, and what each tensor is drawn from.
#pragma once

#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "model/model_spec.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/planted_ffn.h"
#include "prepare/synth/weight_generator.h"

namespace hearth {

// Where the bytes of a tensor come from: a distribution, or the planted model. Of a packed file's
// own tensors (format/bundle_layout.h, sparsity/predictor.h) the neurons are sorted by their
// planted rates.
enum class WeightSource : uint8_t {
  kRandom,
  kPlantedEmbedding,
  kPlantedGate,
  kPlantedUp,
  kPlantedRouter,
  kBundle,  // gate and up planted where there is a planted model
  kBundleOrder,
  kBundleRate,
  kPredictorDown,
  kPredictorUp,
  kPredictorBias,
};

// What random weights are drawn from; different streams are independent.
struct RandomWeights {
  WeightDistribution distribution;
  uint64_t stream = 0;
};

struct SynthTensor {
  GgufTensorDecl decl;
  RandomWeights random;  // kRandom
  WeightSource source = WeightSource::kRandom;
  int64_t layer = -1;  // of a layer's tensor
  // kBundle: what of it is not planted.
  DType bundle_dtype = DType::kQ4_0;
  RandomWeights gate, up, down;
};

struct SynthPlan {
  GgufMetadata metadata;
  std::vector<SynthTensor> tensors;  // in the order of use
};

// The spec that reading the finished file back yields.
ModelSpec SpecOf(const ModelShape& shape);

// Norms, biases and routers are F32, all other weights `quant`. The scales of the weights keep
// activations of the order of 1 through all layers, attention peaked on few tokens and logits
// spread with a standard deviation of 3.
// `planted` is the sparsity to plant, null where there is none; activations keep their order of
// magnitude likewise, but branches add little to the residual.
// Throws Error(kInvalidArgument) for a shape that ValidateShape refuses and for a row length that
// the blocks of `quant` do not divide, naming the tensor; Error(kUnsupported) for a type that
// cannot be made.
SynthPlan PlanSynth(const ModelShape& shape, DType quant, uint64_t seed,
                    const PlantedModel* planted = nullptr);

// Turns the plan of a plain file into that of a packed one: bundles instead of FFN matrices, and
// what lies beside them; predictors where `planted` has them. Throws Error(kInvalidArgument) for a
// type that bundles do not store and for a width that is not a multiple of 32.
void PackSynthPlan(const ModelShape& shape, DType quant, const PlantedModel* planted,
                   SynthPlan* plan);

}  // namespace hearth
