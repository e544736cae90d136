// What a synthesized file contains: metadata, tensors, and what each tensor is drawn from.
#pragma once

#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "model/model_spec.h"
#include "prepare/shapes.h"
#include "prepare/weight_generator.h"

namespace hearth {

struct SynthTensor {
  GgufTensorDecl decl;
  WeightDistribution distribution;
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
// Throws Error(kInvalidArgument) for a shape that ValidateShape refuses and for a row length that
// the blocks of `quant` do not divide, naming the tensor; Error(kUnsupported) for a type that
// cannot be made.
SynthPlan PlanSynth(const ModelShape& shape, DType quant, uint64_t seed);

}  // namespace hearth
