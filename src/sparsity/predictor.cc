#include "sparsity/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace hearth {
namespace {

constexpr PredictorInput kInputs[] = {PredictorInput::kResidual, PredictorInput::kFfnInput};
constexpr const char* kParts[] = {"down", "up", "bias"};

int64_t ExpertsOf(const FfnSpec& ffn) { return std::max<int64_t>(ffn.num_experts, 1); }

bool HasAnyPredictor(const GgufFile& file, int64_t layers) {
  for (const std::string_view key :
       {kPredictorInputKey, kPredictorReluKey, kPredictorThresholdKey}) {
    if (file.metadata().Has(key)) return true;
  }
  for (int64_t l = 0; l < layers; ++l) {
    for (const char* part : kParts) {
      if (file.FindTensorOrNull(PredictorTensorName(l, part)) != nullptr) return true;
    }
  }
  return false;
}

PredictorInput ReadInput(const GgufMetadata& metadata) {
  const std::string& name = metadata.GetString(kPredictorInputKey);
  if (const auto input = PredictorInputFromName(name)) return *input;
  throw Error(ErrorCode::kCorrupt, metadata.file_name(), kPredictorInputKey,
              "residual or ffn_input", "'" + Printable(name) + "'");
}

bool ReadRelu(const GgufMetadata& metadata) {
  if (const auto relu = metadata.FindBool(kPredictorReluKey)) return *relu;
  throw Error(ErrorCode::kNotFound, metadata.file_name(),
              fmt::format("{} is missing", kPredictorReluKey));
}

std::vector<float> ReadThresholds(const GgufMetadata& metadata, size_t count) {
  const auto thresholds = metadata.FindFloats(kPredictorThresholdKey);
  if (!thresholds) {
    throw Error(ErrorCode::kNotFound, metadata.file_name(),
                fmt::format("{} is missing", kPredictorThresholdKey));
  }
  if (thresholds->size() != count) {
    throw Error(ErrorCode::kCorrupt, metadata.file_name(),
                fmt::format("length of {}", kPredictorThresholdKey),
                fmt::format("{} (one per layer and expert)", count),
                std::to_string(thresholds->size()));
  }
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite((*thresholds)[i])) {
      throw Error(ErrorCode::kCorrupt, metadata.file_name(),
                  fmt::format("{}[{}]", kPredictorThresholdKey, i), "a finite number",
                  fmt::format("{}", (*thresholds)[i]));
    }
  }
  return *thresholds;
}

// The rank of one layer, 0 where it has no predictor. Shapes are left to MatchTensor.
int64_t ReadRank(const GgufFile& file, int64_t layer, const FfnSpec& ffn) {
  const GgufTensor* down = file.FindTensorOrNull(PredictorTensorName(layer, "down"));
  if (down == nullptr) {
    for (const char* part : kParts) {
      if (file.FindTensorOrNull(PredictorTensorName(layer, part)) != nullptr) {
        throw Error(ErrorCode::kNotFound, file.path(),
                    fmt::format("{} is missing, {} is there", PredictorTensorName(layer, "down"),
                                PredictorTensorName(layer, part)));
      }
    }
    return 0;
  }
  // More than one inner value per neuron serves nobody, and scratch memory grows with the rank.
  if (down->ne[1] < 1 || down->ne[1] > static_cast<uint64_t>(ffn.intermediate_size)) {
    throw Error(ErrorCode::kCorrupt, file.path(), "rank of " + down->name,
                fmt::format("1 to {} (the layer's neurons)", ffn.intermediate_size),
                std::to_string(down->ne[1]));
  }
  return static_cast<int64_t>(down->ne[1]);
}

}  // namespace

const char* PredictorInputName(PredictorInput input) {
  return input == PredictorInput::kResidual ? "residual" : "ffn_input";
}

std::optional<PredictorInput> PredictorInputFromName(std::string_view name) {
  for (const PredictorInput input : kInputs) {
    if (name == PredictorInputName(input)) return input;
  }
  return std::nullopt;
}

std::string PredictorTensorName(int64_t layer, const char* part) {
  return fmt::format("blk.{}.predictor.{}", layer, part);
}

std::optional<PredictorSpec> ReadPredictorSpec(const GgufFile& file, const ModelSpec& model) {
  if (!HasAnyPredictor(file, model.num_layers)) return std::nullopt;
  PredictorSpec spec;
  spec.input = ReadInput(file.metadata());
  spec.relu = ReadRelu(file.metadata());
  const int64_t ffns = model.num_layers * ExpertsOf(MainFfn(model));
  spec.thresholds = ReadThresholds(file.metadata(), static_cast<size_t>(ffns));
  for (int64_t l = 0; l < model.num_layers; ++l) {
    spec.ranks.push_back(ReadRank(file, l, model.layers[static_cast<size_t>(l)].ffn));
  }
  ModelPredictors unused;
  for (const WeightDecl& decl : DeclarePredictors(spec, model, unused)) {
    const GgufTensor& tensor = MatchTensor(file, decl);
    if (decl.is_vector && tensor.dtype != DType::kF32) {
      throw Error(ErrorCode::kCorrupt, file.path(), "type of " + decl.name, "F32",
                  NameOf(tensor.dtype));
    }
  }
  return spec;
}

std::vector<WeightDecl> DeclarePredictors(const PredictorSpec& spec, const ModelSpec& model,
                                          ModelPredictors& predictors) {
  std::vector<WeightDecl> out;
  predictors.spec = spec;
  predictors.layers.assign(static_cast<size_t>(model.num_layers), {});
  for (int64_t l = 0; l < model.num_layers; ++l) {
    const int64_t rank = spec.ranks[static_cast<size_t>(l)];
    if (rank == 0) continue;
    const FfnSpec& ffn = model.layers[static_cast<size_t>(l)].ffn;
    ModelPredictors::Layer& layer = predictors.layers[static_cast<size_t>(l)];
    out.push_back({.name = PredictorTensorName(l, "down"),
                   .cols = model.hidden_size,
                   .rows = rank,
                   .experts = ExpertsOf(ffn),
                   .slot = &layer.down});
    out.push_back({.name = PredictorTensorName(l, "up"),
                   .cols = rank,
                   .rows = ffn.intermediate_size,
                   .experts = ExpertsOf(ffn),
                   .slot = &layer.up});
    out.push_back({.name = PredictorTensorName(l, "bias"),
                   .cols = ffn.intermediate_size,
                   .rows = ExpertsOf(ffn),
                   .is_vector = true,
                   .slot = &layer.bias});
  }
  return out;
}

PredictorView ModelPredictors::At(int64_t layer, int64_t expert) const {
  const Layer& held = layers[static_cast<size_t>(layer)];
  if (held.down.empty()) return {};
  PredictorView view;
  view.down = held.down.Expert(expert);
  view.up = held.up.Expert(expert);
  view.bias = held.bias;
  view.bias.data += held.bias.row_bytes() * static_cast<size_t>(expert);
  view.bias.rows = 1;
  // Every layer has as many experts as this one: models do not mix.
  const auto experts = static_cast<size_t>(held.down.experts);
  view.threshold =
      spec.thresholds[static_cast<size_t>(layer) * experts + static_cast<size_t>(expert)];
  view.relu = spec.relu;
  view.input = spec.input;
  return view;
}

}  // namespace hearth
