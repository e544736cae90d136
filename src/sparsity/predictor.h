// Predictors: which neurons of an FFN will be active, told from its input before its weights are
// read (P1 §5.1, P2 §2.2).
//
//   logit = up * relu?(down * h) + bias; a neuron is expected to be active where logit > threshold
//
// h is the residual that enters the block or the normalized input of the FFN. In a packed file:
//   blk.N.predictor.down   [experts][rank][hidden]   any matrix type that runs here
//   blk.N.predictor.up     [experts][neurons][rank]  likewise
//   blk.N.predictor.bias   [experts][neurons]        F32
//   hearth.predictor.input      "residual" or "ffn_input"
//   hearth.predictor.relu       true where the inner product passes through relu
//   hearth.predictor.threshold  F32, one per layer and expert, [layer][expert]
// Neurons are in the order of the bundles. The threshold is a value of its own so that recall can
// be traded for reads without touching weights. A layer without these tensors has no predictor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "model/model_spec.h"
#include "model/weights.h"
#include "tensor/view.h"

namespace hearth {

inline constexpr std::string_view kPredictorInputKey = "hearth.predictor.input";
inline constexpr std::string_view kPredictorReluKey = "hearth.predictor.relu";
inline constexpr std::string_view kPredictorThresholdKey = "hearth.predictor.threshold";

enum class PredictorInput : uint8_t { kResidual, kFfnInput };

const char* PredictorInputName(PredictorInput input);  // "residual", "ffn_input"
std::optional<PredictorInput> PredictorInputFromName(std::string_view name);

// The predictor of one FFN in memory; views as weights are held.
struct PredictorView {
  WeightView down;  // [rank][hidden]
  WeightView up;    // [neurons][rank]
  WeightView bias;  // [neurons], F32
  float threshold = 0;
  bool relu = false;
  PredictorInput input = PredictorInput::kFfnInput;

  bool empty() const { return down.empty(); }
  int64_t rank() const { return down.rows; }
};

std::string PredictorTensorName(int64_t layer, const char* part);  // part: "down", "up", "bias"

// What a packed file says of its predictors.
struct PredictorSpec {
  PredictorInput input = PredictorInput::kFfnInput;
  bool relu = false;
  std::vector<int64_t> ranks;     // per layer; 0: no predictor
  std::vector<float> thresholds;  // [layer][expert]
};

// Reads and checks metadata and the tensors' shapes; nothing where the file has no predictors.
// Throws Error, naming the key or tensor: kNotFound where one of those that belong together is
// missing, kCorrupt where a shape, a count, the input's name or a threshold (it must be finite)
// cannot be right.
std::optional<PredictorSpec> ReadPredictorSpec(const GgufFile& file, const ModelSpec& model);

// All predictors of a model in memory: views that the loader fills.
struct ModelPredictors {
  struct Layer {
    WeightView down;  // [experts or 1][rank][hidden]
    WeightView up;    // [experts or 1][neurons][rank]
    WeightView bias;  // [experts or 1][neurons], F32: an expert is a row
  };

  PredictorSpec spec;
  std::vector<Layer> layers;

  // Empty where the layer has no predictor.
  PredictorView At(int64_t layer, int64_t expert) const;
};

// The tensors of a checked spec, as DeclareWeights gives those of the model; slots point into
// `predictors`, whose spec is set and whose layers are resized to fit and must not move afterwards.
std::vector<WeightDecl> DeclarePredictors(const PredictorSpec& spec, const ModelSpec& model,
                                          ModelPredictors& predictors);

}  // namespace hearth
