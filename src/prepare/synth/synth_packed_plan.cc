// Plans of packed files (synth_plan.h).
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "format/bundle_layout.h"
#include "format/packed_file.h"
#include "prepare/synth/synth_plan.h"
#include "sparsity/predictor.h"

namespace hearth {
namespace {

// Nearly exact beside the noise that is planted, and as fast as anything smaller to ask.
constexpr DType kPredictorType = DType::kQ8_0;

// "blk.3.ffn_gate.weight" and "blk.3.ffn_gate_exps.weight" where role is "ffn_gate".
bool IsFfnMatrix(std::string_view name, std::string_view role) {
  const size_t at = name.find(role);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = name.substr(at + role.size());
  return rest == ".weight" || rest == "_exps.weight";
}

class PackedPlanner {
 public:
  PackedPlanner(const ModelShape& shape, DType quant, const PlantedModel* planted)
      : shape_(shape), quant_(quant), planted_(planted) {
    if (!CanBundle(quant)) {
      throw Error(ErrorCode::kInvalidArgument, Field{"quant"},
                  "type of the weights of a packed file", "q4_0, q4_1, q8_0 or f16", NameOf(quant));
    }
    if (shape.hidden_size % 32 != 0) {
      throw Error(ErrorCode::kInvalidArgument, shape.name, "hidden_size",
                  "a multiple of 32 for a packed file", fmt::format("{}", shape.hidden_size));
    }
    layout_ = MakeBundleLayout(quant, shape.hidden_size);
  }

  void Pack(SynthPlan* plan) {
    std::vector<SynthTensor> others;
    for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
      bundles_.push_back(
          LayerTensor(layer, BundleTensorName(layer), DType::kI8, WeightSource::kBundle,
                      {layout_.stride, static_cast<uint64_t>(shape_.intermediate_size)}));
      bundles_.back().bundle_dtype = quant_;
    }
    for (SynthTensor& tensor : plan->tensors) {
      if (!TakeFfn(tensor)) others.push_back(std::move(tensor));
    }
    // Everything that is loaded whole comes first, as one run of the file.
    for (int64_t layer = 0; layer < shape_.num_layers; ++layer) AddSides(layer, &others);
    for (int64_t layer = 0; layer < shape_.num_layers; ++layer) {
      others.push_back(std::move(bundles_[static_cast<size_t>(layer)]));
    }
    plan->tensors = std::move(others);
    SetPackedMetadata(layout_, 0, &plan->metadata);
    if (HasPredictors()) SetPredictorKeys(&plan->metadata);
  }

 private:
  bool HasPredictors() const { return planted_ != nullptr && planted_->predictor_rank() > 0; }

  // True where the tensor goes into bundles.
  bool TakeFfn(const SynthTensor& tensor) {
    if (tensor.layer < 0) return false;
    SynthTensor& bundle = bundles_[static_cast<size_t>(tensor.layer)];
    for (const auto& [role, weights] :
         {std::pair{"ffn_gate", &bundle.gate}, std::pair{"ffn_up", &bundle.up},
          std::pair{"ffn_down", &bundle.down}}) {
      if (!IsFfnMatrix(tensor.decl.name, role)) continue;
      *weights = tensor.random;
      return true;
    }
    return false;
  }

  SynthTensor LayerTensor(int64_t layer, std::string name, DType dtype, WeightSource source,
                          std::vector<uint64_t> ne) const {
    SynthTensor tensor;
    tensor.decl = {std::move(name), dtype, std::move(ne)};
    if (shape_.num_experts > 0) {
      tensor.decl.ne.push_back(static_cast<uint64_t>(shape_.num_experts));
    }
    tensor.source = source;
    tensor.layer = layer;
    return tensor;
  }

  void AddSides(int64_t layer, std::vector<SynthTensor>* tensors) const {
    const auto hidden = static_cast<uint64_t>(shape_.hidden_size);
    const auto neurons = static_cast<uint64_t>(shape_.intermediate_size);
    const auto add = [&](std::string name, DType dtype, WeightSource source,
                         std::vector<uint64_t> ne) {
      tensors->push_back(LayerTensor(layer, std::move(name), dtype, source, std::move(ne)));
    };
    add(BundleOrderName(layer), DType::kI32, WeightSource::kBundleOrder, {neurons});
    if (planted_ != nullptr && planted_->plants_neurons()) {
      add(BundleRateName(layer), DType::kF32, WeightSource::kBundleRate, {neurons});
    }
    if (!HasPredictors()) return;
    const auto rank = static_cast<uint64_t>(planted_->predictor_rank());
    add(PredictorTensorName(layer, "down"), kPredictorType, WeightSource::kPredictorDown,
        {hidden, rank});
    add(PredictorTensorName(layer, "up"), kPredictorType, WeightSource::kPredictorUp,
        {rank, neurons});
    add(PredictorTensorName(layer, "bias"), DType::kF32, WeightSource::kPredictorBias, {neurons});
  }

  void SetPredictorKeys(GgufMetadata* metadata) const {
    metadata->SetString(kPredictorInputKey, PredictorInputName(PredictorInput::kFfnInput));
    metadata->SetBool(kPredictorReluKey, false);
    const int64_t ffns = shape_.num_layers * std::max<int64_t>(shape_.num_experts, 1);
    // Biases hold the thresholds.
    metadata->SetFloat32s(kPredictorThresholdKey,
                          std::vector<float>(static_cast<size_t>(ffns), 0.0f));
  }

  const ModelShape& shape_;
  const DType quant_;
  const PlantedModel* const planted_;
  BundleLayout layout_;
  std::vector<SynthTensor> bundles_;  // per layer
};

}  // namespace

void PackSynthPlan(const ModelShape& shape, DType quant, const PlantedModel* planted,
                   SynthPlan* plan) {
  PackedPlanner(shape, quant, planted).Pack(plan);
}

}  // namespace hearth
