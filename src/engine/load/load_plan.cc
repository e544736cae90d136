// What loading a file takes, decided before anything large is allocated (engine/load/model.h).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rounding.h"
#include "engine/load/model.h"
#include "format/packed_file.h"
#include "model/unsupported.h"
#include "ops/repack.h"
#include "tensor/half.h"

namespace hearth {
namespace {

// Every tensor starts on a cache line.
constexpr uint64_t kTensorAlignment = 64;
// Rows looked at where the resident type depends on the weights.
constexpr uint64_t kSampleRows = 8;

DType DecideType(const GgufFile& file, const WeightDecl& decl, const GgufTensor& tensor) {
  if (decl.is_vector) return DType::kF32;
  if (!IsWeightType(tensor.dtype)) {
    throw Error(ErrorCode::kUnsupported, file.path(),
                std::string("tensor ") + Printable(tensor.name), "a float or quantized type",
                NameOf(tensor.dtype));
  }
  if (decl.is_embedding) return tensor.dtype;
  const DTypeInfo& info = InfoOf(tensor.dtype);
  const uint64_t row_bytes = tensor.ne[0] / info.block_size * info.block_bytes;
  std::vector<std::byte> sample;
  if (!RunsAsStored(tensor.dtype) && row_bytes > 0) {
    sample.resize(std::min(tensor.bytes, kSampleRows * row_bytes));
    file.ReadTensor(tensor, 0, sample);
  }
  return ResidentType(tensor.dtype, sample, decl.cols);
}

// A tensor that no declaration names would be left out of the computation silently.
void RefuseUnknownTensors(const GgufFile& file, const ModelSpec& spec,
                          const std::vector<ResidentTensor>& used) {
  std::set<std::string_view> known;
  for (const ResidentTensor& tensor : used) known.insert(tensor.decl.name);
  for (const GgufTensor& tensor : file.tensors()) {
    // Old converters stored RoPE's frequencies, which follow from the metadata.
    const bool is_derived = tensor.name.ends_with(".attn_rot_embd.weight");
    // Facts about neurons that tools read and running does not need.
    const bool is_for_tools =
        tensor.name.ends_with(".ffn_order") || tensor.name.ends_with(".ffn_rate");
    const bool is_used = known.count(tensor.name) != 0 || IsOfGuessingLayer(spec, tensor.name);
    if (!is_derived && !is_for_tools && !is_used) {
      throw Error(ErrorCode::kUnsupported, file.path(),
                  "tensor '" + Printable(tensor.name) + "' is not part of a '" +
                      Printable(file.metadata().GetString("general.architecture")) +
                      "' model as Hearth knows it");
    }
  }
}

// Number i of a vector of F32, F16 or BF16, which MatchTensor has seen to.
float FloatAt(const std::vector<std::byte>& bytes, DType dtype, size_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
  return dtype == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
}

size_t AlignedBytes(uint64_t bytes) {
  return static_cast<size_t>(RoundUp(bytes, kTensorAlignment));
}

void Place(ResidentTensor tensor, LoadPlan& plan) {
  tensor.offset = plan.weights_bytes;
  plan.weights_bytes += AlignedBytes(tensor.bytes);
  plan.tensors.push_back(std::move(tensor));
}

ResidentTensor PlanMatrix(const GgufFile& file, WeightDecl decl, bool tied_embeddings) {
  ResidentTensor tensor;
  tensor.stored = &MatchTensor(file, decl);
  tensor.dtype = DecideType(file, decl, *tensor.stored);
  tensor.is_tiled = TileLayout::IsTiled(tensor.dtype) && (!decl.is_embedding || tied_embeddings);
  tensor.decl = std::move(decl);
  tensor.bytes = tensor.View(nullptr).expert_bytes() * static_cast<uint64_t>(tensor.decl.experts);
  return tensor;
}

ResidentTensor PlanBundles(const GgufFile& file, const ModelSpec& spec, int64_t layer) {
  const FfnSpec& ffn = spec.layers[static_cast<size_t>(layer)].ffn;
  ResidentTensor tensor;
  tensor.decl.name = BundleTensorName(layer);
  const uint64_t stride = file.GetTensor(tensor.decl.name).ne[0];
  const BundleLayout layout = ReadBundleLayout(file.metadata(), spec.hidden_size, stride);
  const BundleKind kind = BundleKindOf(ffn);
  if (layout.kind() != kind) {
    const auto text = [](const BundleKind& k) {
      return k.is_gated ? "gate, up and down" : k.has_bias ? "fc1, bias and fc2" : "fc1 and fc2";
    };
    throw Error(ErrorCode::kCorrupt, file.path(), std::string(kBundlePartsKey), text(kind),
                text(layout.kind()));
  }
  tensor.decl.cols = static_cast<int64_t>(stride);
  tensor.decl.rows = ffn.intermediate_size;
  tensor.decl.experts = std::max<int64_t>(ffn.num_experts, 1);
  tensor.stored = &MatchTensor(file, tensor.decl);
  tensor.dtype = DType::kI8;
  if (tensor.stored->dtype != tensor.dtype) {
    throw Error(ErrorCode::kCorrupt, file.path(), "type of " + tensor.decl.name, "I8",
                NameOf(tensor.stored->dtype));
  }
  tensor.bundles.emplace(layout, layer, spec.hidden_size);
  tensor.bytes = tensor.neurons() * tensor.bundles->bytes_of_neuron();
  return tensor;
}

void DeclarePredictorsOf(const GgufFile& file, LoadPlan& plan, std::vector<WeightDecl>& decls) {
  const std::optional<PredictorSpec> spec = ReadPredictorSpec(file, plan.spec);
  if (!spec) return;
  plan.predictors = std::make_unique<ModelPredictors>();
  for (WeightDecl& decl : DeclarePredictors(*spec, plan.spec, *plan.predictors)) {
    decls.push_back(std::move(decl));
  }
}

}  // namespace

void RemoveTensors(LoadPlan& plan, const std::function<bool(const ResidentTensor&)>& is_removed) {
  std::vector<ResidentTensor> all = std::move(plan.tensors);
  plan.tensors.clear();
  plan.weights_bytes = 0;
  for (ResidentTensor& tensor : all) {
    if (!is_removed(tensor)) Place(std::move(tensor), plan);
  }
}

void DescribeRows(const ResidentTensor& tensor, ModelWeights& weights) {
  const BundlePlacement& bundles = *tensor.bundles;
  const auto rows = [&](BundleRole role) {
    const BundlePart* const part = bundles.layout.FindPart(role);
    if (part == nullptr) return RowsView{};
    return RowsView{.dtype = part->dtype,
                    .stride = bundles.layout.stride,
                    .cols = bundles.hidden_size,
                    .rows = tensor.decl.rows,
                    .experts = tensor.decl.experts};
  };
  LayerWeights& layer = weights.layers[static_cast<size_t>(bundles.layer)];
  layer.gate_rows = rows(BundleRole::kGate);
  layer.up_rows = rows(BundleRole::kUp);
  layer.down_rows = rows(BundleRole::kDown);
}

void DescribeWeights(LoadPlan& plan) {
  for (const ResidentTensor& tensor : plan.tensors) {
    if (tensor.bundles) {
      DescribeRows(tensor, *plan.weights);
    } else if (tensor.decl.slot != nullptr) {
      *tensor.decl.slot = tensor.View(nullptr);
    }
  }
  if (plan.spec.tied_embeddings) plan.weights->output = plan.weights->token_embedding;
}

BundlePlacement::BundlePlacement(BundleLayout in_file, int64_t layer_index, int64_t hidden)
    : layout(std::move(in_file)),
      layer(layer_index),
      hidden_size(hidden),
      gate_stride(AlignedBytes(GateChecked(layout).bytes)),
      down_offset(layout.kind().is_gated ? AlignedBytes(layout.Part(BundleRole::kUp).bytes) : 0),
      rest_stride(down_offset + AlignedBytes(layout.Part(BundleRole::kDown).bytes)) {}

WeightView ResidentTensor::View(const std::byte* buffer) const {
  return {.data = buffer == nullptr ? nullptr : buffer + offset,
          .dtype = dtype,
          .cols = decl.cols,
          .rows = decl.rows,
          .experts = decl.experts,
          .is_tiled = is_tiled};
}

uint64_t ResidentTensor::stored_rows() const {
  return static_cast<uint64_t>(decl.of > 0 && !decl.is_vector ? decl.of : decl.rows);
}

uint64_t ResidentTensor::stored_begin() const {
  const auto first = static_cast<size_t>(decl.first);
  return decl.is_vector ? RowBytes(stored->dtype, first)
                        : first * RowBytes(stored->dtype, static_cast<size_t>(decl.cols));
}

LoadPlan PlanLoad(const GgufFile& file) {
  file.RefuseForeignTensors();
  LoadPlan plan;
  plan.spec = ReadModelSpec(file);
  plan.weights = std::make_unique<ModelWeights>();
  plan.is_packed = IsPacked(file.metadata());
  if (plan.is_packed) CheckPackedFile(file);
  std::vector<WeightDecl> decls = DeclareWeights(
      plan.spec, *plan.weights, plan.is_packed ? FfnStorage::kBundles : FfnStorage::kMatrices);
  RefuseUnsupportedTensors(file, plan.spec, decls);
  if (plan.is_packed) DeclarePredictorsOf(file, plan, decls);
  for (WeightDecl& decl : decls) {
    ResidentTensor tensor = PlanMatrix(file, std::move(decl), plan.spec.tied_embeddings);
    if (tensor.dtype != tensor.stored->dtype && !tensor.decl.is_vector) {
      plan.conversions.emplace(tensor.stored->dtype, tensor.dtype);
    }
    Place(std::move(tensor), plan);
  }
  for (int64_t l = 0; plan.is_packed && l < plan.spec.num_layers; ++l) {
    Place(PlanBundles(file, plan.spec, l), plan);
  }
  RefuseUnknownTensors(file, plan.spec, plan.tensors);
  return plan;
}

void CheckVocabulary(const ModelSpec& spec, const Tokenizer& tokenizer, const std::string& file) {
  if (static_cast<int64_t>(tokenizer.vocab_size()) <= spec.vocab_size) return;
  throw Error(ErrorCode::kCorrupt, file, "tokens of the vocabulary",
              "at most the embedding's " + std::to_string(spec.vocab_size),
              std::to_string(tokenizer.vocab_size()));
}

void CheckRopeFactors(const GgufFile& file) {
  const GgufTensor* const tensor = file.FindTensorOrNull("rope_freqs.weight");
  if (tensor == nullptr) return;
  std::vector<std::byte> bytes(tensor->bytes);
  file.ReadTensor(*tensor, 0, bytes);
  for (size_t i = 0; i < tensor->num_weights(); ++i) {
    const float factor = FloatAt(bytes, tensor->dtype, i);
    if (factor > 0 && std::isfinite(factor)) continue;
    throw Error(ErrorCode::kCorrupt, file.path(), "rope_freqs.weight", "positive numbers",
                std::to_string(factor));
  }
}

}  // namespace hearth
