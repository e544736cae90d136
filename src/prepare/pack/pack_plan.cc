#include "prepare/pack/pack_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/load/ffn_mode.h"
#include "engine/load/model.h"
#include "format/packed_file.h"
#include "model/common_spec.h"
#include "ops/repack.h"
#include "prepare/pack/packed_predictors.h"
#include "tensor/op_names.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

// Rows looked at where the bundles' type depends on the weights.
constexpr uint64_t kSampleRows = 8;

// Rows made by a function as a tensor: fill of PackedTensor.
template <typename T, typename RowFn>
PackedTensor RowsTensor(std::string name, DType dtype, const PackedLayer& layer, RowFn value_of) {
  PackedTensor tensor;
  const auto neurons = static_cast<uint64_t>(layer.neurons);
  const auto experts = static_cast<uint64_t>(layer.experts);
  tensor.decl = {std::move(name), dtype, {neurons}};
  if (layer.is_moe) tensor.decl.ne.push_back(experts);
  tensor.unit_bytes = neurons * sizeof(T);
  tensor.bytes = experts * tensor.unit_bytes;
  tensor.fill = [unit = tensor.unit_bytes, neurons, value_of](uint64_t begin,
                                                              std::span<std::byte> out) {
    for (uint64_t at = 0; at < out.size(); at += unit) {
      for (uint64_t i = 0; i < neurons; ++i) {
        const T value = value_of((begin + at) / unit, i);
        std::memcpy(out.data() + at + i * sizeof(T), &value, sizeof(T));
      }
    }
  };
  return tensor;
}

float RateOf(const FfnProfile& profile, size_t neuron) {
  if (profile.tokens == 0) return 0;
  return static_cast<float>(static_cast<double>(profile.active[neuron]) /
                            static_cast<double>(profile.tokens));
}

// Neurons by how often they were active, most first, ties by index; as they are without a profile.
std::vector<int32_t> OrderOf(const FfnProfile* profile, int64_t neurons) {
  std::vector<int32_t> order(static_cast<size_t>(neurons));
  std::iota(order.begin(), order.end(), 0);
  if (profile == nullptr) return order;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return profile->active[static_cast<size_t>(a)] > profile->active[static_cast<size_t>(b)];
  });
  return order;
}

class Planner {
 public:
  Planner(const GgufFile& source, const PackOptions& options)
      : source_(source), options_(options), load_(PlanLoad(source)) {
    if (!options.silu_thresholds.empty()) ThresholdSilu(options.silu_thresholds, &load_.spec);
  }

  std::unique_ptr<const PackPlan> Plan() {
    const uint64_t model_hash = ModelHash(source_);
    if (options_.profile != nullptr) CheckProfile(*options_.profile, model_hash);
    if (options_.predictors != nullptr) {
      CheckPredictors(*options_.predictors, load_.spec);
    }
    PlanBundles();
    PlanOthers();
    plan_->metadata = source_.metadata();
    SetPackedMetadata(plan_->layout, model_hash, &plan_->metadata);
    if (options_.profile != nullptr) {
      plan_->metadata.SetUint64("hearth.profile.tokens", options_.profile->text_tokens);
    }
    if (options_.predictors != nullptr) {
      SetPredictorMetadata(*options_.predictors, &plan_->metadata);
    }
    if (!options_.silu_thresholds.empty()) {
      plan_->metadata.SetString(kFfnActivationKey,
                                FfnActivationName(FfnActivation::kThresholdedSilu));
      plan_->metadata.SetFloat32s(kFfnThresholdsKey, options_.silu_thresholds);
    }
    plan_->metadata.SetUint32(kFfnModeKey, static_cast<uint32_t>(ModeToRecord()));
    return std::move(plan_);
  }

 private:
  FfnMode ModeToRecord() const {
    const FfnActivation activation = MainFfn(spec()).activation;
    const std::vector<FfnMode> usable = ModesOfPacked(activation, options_.predictors != nullptr);
    if (!options_.mode) return usable.back();
    if (std::find(usable.begin(), usable.end(), *options_.mode) == usable.end()) {
      throw Error(ErrorCode::kUnsupported, source_.path(),
                  MissingForMode(*options_.mode, activation));
    }
    return *options_.mode;
  }

  const ModelSpec& spec() const { return load_.spec; }

  // The type of bundles whose gates are rows of this tensor.
  DType BundleTypeOf(const GgufTensor& gate) const {
    const uint64_t cols = gate.ne[0];
    const uint64_t row_bytes = RowBytes(gate.dtype, cols);
    std::vector<std::byte> sample(std::min(gate.bytes, kSampleRows * row_bytes));
    source_.ReadTensor(gate, 0, sample);
    return ChooseBundleType(gate.dtype,
                            ConvertedType(gate.dtype, sample, static_cast<int64_t>(cols)));
  }

  void RefuseOtherFfns() const {
    const auto refuse = [&](const char* what) {
      throw Error(ErrorCode::kUnsupported, source_.path(),
                  std::string(what) + " cannot be packed yet");
    };
    if (!HasEqualFfns(spec())) refuse("layers with FFNs of different sizes");
    if (MainFfn(spec()).kind == FfnKind::kGated && MainFfn(spec()).bias) {
      refuse("gated FFNs with biases");
    }
  }

  void PlanBundles() {
    PackPlan& plan = *plan_;
    plan.hidden = spec().hidden_size;
    if (plan.hidden % 32 != 0) {
      throw Error(ErrorCode::kUnsupported, source_.path(), "hidden size",
                  "a multiple of 32, the weights of a block", std::to_string(plan.hidden));
    }
    RefuseOtherFfns();
    for (int64_t l = 0; l < spec().num_layers; ++l) plan.layers.push_back(PlanLayer(l));
    const GgufTensor& gate = *plan.layers.front().gate.tensor;
    plan.quant = options_.quant ? *options_.quant : BundleTypeOf(gate);
    if (!CanBundle(plan.quant)) {
      throw Error(ErrorCode::kInvalidArgument, Field{"quant"}, "type of bundles",
                  "q4_0, q4_1, q8_0 or f16", NameOf(plan.quant));
    }
    plan.layout = MakeBundleLayout(plan.quant, plan.hidden, BundleKindOf(MainFfn(spec())));
  }

  PackedLayer PlanLayer(int64_t index) {
    const FfnSpec& ffn = spec().layers[static_cast<size_t>(index)].ffn;
    PackedLayer layer;
    layer.layer = index;
    layer.is_moe = ffn.num_experts > 0;
    layer.experts = std::max<int64_t>(ffn.num_experts, 1);
    layer.neurons = ffn.intermediate_size;
    plan_->neurons += static_cast<uint64_t>(layer.experts * layer.neurons);
    const auto tensor = [&](const char* role, const char* what) {
      return &source_.GetTensor(
          fmt::format("blk.{}.ffn_{}{}.{}", index, role, layer.is_moe ? "_exps" : "", what));
    };
    const BundleKind kind = BundleKindOf(ffn);
    if (ffn.fused_gate_up) {
      layer.gate.tensor = layer.up.tensor = tensor(layer.is_moe ? "gate_up" : "up", "weight");
      layer.up.first_row = static_cast<uint64_t>(ffn.intermediate_size);
    } else {
      layer.gate.tensor = tensor(kind.is_gated ? "gate" : "up", "weight");
      if (kind.is_gated) layer.up.tensor = tensor("up", "weight");
    }
    layer.down = tensor("down", "weight");
    if (kind.has_bias) layer.bias = tensor("up", "bias");
    for (int64_t e = 0; e < layer.experts; ++e) {
      const FfnProfile* profile =
          options_.profile != nullptr ? &options_.profile->At(index, e) : nullptr;
      layer.order.push_back(OrderOf(profile, layer.neurons));
    }
    return layer;
  }

  // Everything that is loaded whole comes first, as one run of the file.
  void PlanOthers() {
    std::set<const GgufTensor*> in_bundles;
    for (const PackedLayer& layer : plan_->layers) {
      in_bundles.insert({layer.gate.tensor, layer.up.tensor, layer.down, layer.bias});
    }
    for (const GgufTensor& tensor : source_.tensors()) {
      if (in_bundles.count(&tensor) == 0) plan_->others.push_back(Copy(tensor));
    }
    for (const PackedLayer& layer : plan_->layers) {
      plan_->others.push_back(RowsTensor<int32_t>(
          BundleOrderName(layer.layer), DType::kI32, layer,
          [&layer](uint64_t expert, uint64_t slot) { return layer.order[expert][slot]; }));
      if (const ModelProfile* profile = options_.profile) {
        plan_->others.push_back(RowsTensor<float>(
            BundleRateName(layer.layer), DType::kF32, layer,
            [&layer, profile](uint64_t expert, uint64_t slot) {
              return RateOf(profile->At(layer.layer, static_cast<int64_t>(expert)),
                            static_cast<size_t>(layer.order[expert][slot]));
            }));
      }
      if (options_.predictors == nullptr) continue;
      for (PackedTensor& tensor : PackPredictor(*options_.predictors, layer, plan_->hidden)) {
        plan_->predictor_bytes += tensor.bytes;
        plan_->others.push_back(std::move(tensor));
      }
    }
  }

  PackedTensor Copy(const GgufTensor& tensor) const {
    PackedTensor copy;
    copy.decl.name = tensor.name;
    copy.decl.dtype = tensor.dtype;
    copy.decl.ne.assign(tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims);
    copy.bytes = tensor.bytes;
    copy.copied = &tensor;
    copy.fill = [source = &source_, from = &tensor](uint64_t begin, std::span<std::byte> out) {
      source->ReadTensor(*from, begin, out);
    };
    return copy;
  }

  void CheckProfile(const ModelProfile& profile, uint64_t model_hash) const {
    const auto refuse = [](const char* what, const auto& expected, const auto& found) {
      throw Error(ErrorCode::kInvalidArgument, "profile", what, fmt::format("{}", expected),
                  fmt::format("{}", found));
    };
    const FfnSpec& ffn = MainFfn(spec());
    if (profile.model_hash != model_hash && profile.activation != ffn.activation) {
      refuse("activation of the model that it was made with", FfnActivationName(ffn.activation),
             FfnActivationName(profile.activation));
    }
    if (profile.model_hash != model_hash) {
      refuse("hash of the model that it was made with", fmt::format("{:016x}", model_hash),
             fmt::format("{:016x} ('{}')", profile.model_hash, Printable(profile.model_name)));
    }
    if (profile.num_layers != spec().num_layers) {
      refuse("layers", spec().num_layers, profile.num_layers);
    }
    if (profile.num_experts != ffn.num_experts) {
      refuse("experts", ffn.num_experts, profile.num_experts);
    }
    const auto ffns =
        static_cast<size_t>(spec().num_layers * std::max<int64_t>(ffn.num_experts, 1));
    if (profile.ffns.size() != ffns) refuse("FFNs", ffns, profile.ffns.size());
    for (const FfnProfile& one : profile.ffns) {
      if (one.active.size() != static_cast<size_t>(ffn.intermediate_size)) {
        refuse("neurons of an FFN", ffn.intermediate_size, one.active.size());
      }
    }
  }

  const GgufFile& source_;
  const PackOptions& options_;
  LoadPlan load_;
  std::unique_ptr<PackPlan> plan_ = std::make_unique<PackPlan>();
};

}  // namespace

DType ChooseBundleType(DType stored, DType converted) {
  if (HasRowGroups(stored)) return stored;
  return HasRowGroups(converted) ? converted : DType::kQ8_0;
}

std::vector<GgufTensorDecl> PackPlan::Decls() const {
  std::vector<GgufTensorDecl> decls;
  for (const PackedTensor& tensor : others) decls.push_back(tensor.decl);
  for (const PackedLayer& layer : layers) {
    GgufTensorDecl decl{BundleTensorName(layer.layer),
                        DType::kI8,
                        {layout.stride, static_cast<uint64_t>(layer.neurons)}};
    if (layer.is_moe) decl.ne.push_back(static_cast<uint64_t>(layer.experts));
    decls.push_back(std::move(decl));
  }
  return decls;
}

std::unique_ptr<const PackPlan> PlanPack(const GgufFile& source, const PackOptions& options) {
  if (IsPacked(source.metadata())) {
    throw Error(ErrorCode::kUnsupported, source.path(), "is a packed file already");
  }
  return Planner(source, options).Plan();
}

}  // namespace hearth
