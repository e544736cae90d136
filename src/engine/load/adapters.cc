#include "engine/load/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>

#include "base/checksum.h"
#include "base/error.h"
#include "ops/repack.h"

namespace hearth {
namespace {

struct AdaptedSlot {
  AdaptedMatrix which;
  WeightView LayerWeights::*slot;
};
constexpr AdaptedSlot kAdaptedSlots[] = {
    {AdaptedMatrix::kQuery, &LayerWeights::attn_q},
    {AdaptedMatrix::kKey, &LayerWeights::attn_k},
    {AdaptedMatrix::kValue, &LayerWeights::attn_v},
    {AdaptedMatrix::kAttentionOutput, &LayerWeights::attn_output},
    {AdaptedMatrix::kGate, &LayerWeights::ffn_gate},
    {AdaptedMatrix::kUp, &LayerWeights::ffn_up},
    {AdaptedMatrix::kDown, &LayerWeights::ffn_down},
    {AdaptedMatrix::kSharedGate, &LayerWeights::shared_gate},
    {AdaptedMatrix::kSharedUp, &LayerWeights::shared_up},
    {AdaptedMatrix::kSharedDown, &LayerWeights::shared_down}};

std::string ShapeText(const GgufTensor& tensor) {
  std::string text = fmt::format("[{}, {}", tensor.ne[0], tensor.ne[1]);
  if (tensor.ne[2] != 1 || tensor.ne[3] != 1) text += fmt::format(", {}", tensor.ne[2]);
  return text + "]";
}

bool IsOfSingleNeurons(std::string_view name) {
  return name.ends_with(".ffn_gate.weight") || name.ends_with(".ffn_up.weight") ||
         name.ends_with(".ffn_down.weight");
}

// Finds the matrix of a base for each of an adapter's tensors.
class Planner {
 public:
  Planner(AdapterPlan& plan, const ModelSpec& spec, FfnStorage ffn)
      : plan_(plan), file_(plan.file->file), ffn_(ffn) {
    decls_ = DeclareWeights(spec, weights_, ffn);
  }

  void Run() {
    if (file_.tensors().empty()) throw Error(ErrorCode::kCorrupt, path(), "it has no tensors");
    for (const GgufTensor& tensor : file_.tensors()) {
      const std::string_view name = tensor.name;
      if (name.ends_with(kLoraA)) {
        Take(tensor, tensor.name.substr(0, name.size() - kLoraA.size()));
      } else if (!name.ends_with(kLoraB)) {
        throw Error(ErrorCode::kUnsupported, path(),
                    fmt::format("tensor '{}': only NAME.lora_a and NAME.lora_b are computed",
                                Printable(name)));
      } else {
        Other(tensor.name.substr(0, name.size() - kLoraB.size()), kLoraA);
      }
    }
  }

 private:
  const std::string& path() const { return file_.path(); }

  // The other tensor of a pair.
  const GgufTensor& Other(const std::string& name, std::string_view ending) const {
    const GgufTensor* const other = file_.FindTensorOrNull(name + std::string(ending));
    if (other != nullptr) return *other;
    throw Error(ErrorCode::kCorrupt, path(),
                fmt::format("tensor '{}{}' is missing", Printable(name), ending));
  }

  void Take(const GgufTensor& a, const std::string& name) {
    const GgufTensor& b = Other(name, kLoraB);
    uint64_t a_offset = 0;
    bool is_found = false;
    for (const WeightDecl& decl : decls_) {
      if (decl.name != name) continue;
      PlannedPair pair = PairOf(decl);
      CheckShapes(decl, a, b);
      pair.a = &a;
      pair.b = &b;
      pair.first_row = decl.first;
      pair.rows = decl.rows;
      pair.scale = plan_.file->scales.at(name);
      if (!is_found) a_offset = Place(a.ne[0] * a.ne[1]);
      is_found = true;
      pair.a_offset = a_offset;
      pair.b_offset = Place(static_cast<uint64_t>(decl.rows) * b.ne[0]);
      plan_.pairs.push_back(pair);
    }
    if (!is_found) RefuseUnknown(name);
  }

  [[noreturn]] void RefuseUnknown(const std::string& name) const {
    if (ffn_ == FfnStorage::kBundles && IsOfSingleNeurons(name)) {
      throw Error(
          ErrorCode::kUnsupported, path(),
          fmt::format("it changes '{}', and a packed model's FFNs are single neurons, which "
                      "adapters are not computed for (in 'predicted' mode its predictors "
                      "know the base alone): use it with the file that was packed",
                      Printable(name)));
    }
    throw Error(ErrorCode::kUnsupported, path(),
                fmt::format("it changes '{}', which the base does not have", Printable(name)));
  }

  // Returns the layer and the matrix of a declaration.
  PlannedPair PairOf(const WeightDecl& decl) const {
    const char* reason = "and adapters can only change matrices of attention and FFNs";
    for (size_t l = 0; l < weights_.layers.size() && decl.experts == 1; ++l) {
      const LayerWeights& layer = weights_.layers[l];
      const auto* const found = std::find_if(
          std::begin(kAdaptedSlots), std::end(kAdaptedSlots),
          [&](const AdaptedSlot& adapted) { return decl.slot == &(layer.*adapted.slot); });
      if (found != std::end(kAdaptedSlots)) {
        return {.layer = static_cast<int64_t>(l), .which = found->which};
      }
    }
    if (decl.experts > 1) reason = "and adapters of experts are not computed";
    throw Error(ErrorCode::kUnsupported, path(),
                fmt::format("it changes '{}', {}", Printable(decl.name), reason));
  }

  void CheckShapes(const WeightDecl& decl, const GgufTensor& a, const GgufTensor& b) const {
    const auto cols = static_cast<uint64_t>(decl.cols);
    const auto rows = static_cast<uint64_t>(decl.of > 0 ? decl.of : decl.rows);
    const uint64_t rank = a.ne[1];
    const std::string of_base = fmt::format(" for the base's [{}, {}]", cols, rows);
    if (rank < 1 || rank > static_cast<uint64_t>(kMostAdapterRank)) {
      throw Error(ErrorCode::kCorrupt, path(), "rank of " + Printable(a.name),
                  fmt::format("1 to {}", kMostAdapterRank),
                  fmt::format("{}, shape {}{}", rank, ShapeText(a), of_base));
    }
    if (a.num_dims > 2 || a.ne[0] != cols) Refuse(a, cols, rank, of_base);
    if (b.num_dims > 2 || b.ne[0] != rank || b.ne[1] != rows) Refuse(b, rank, rows, of_base);
    for (const GgufTensor* tensor : {&a, &b}) {
      if (IsWeightType(tensor->dtype)) continue;
      throw Error(ErrorCode::kUnsupported, path(), "tensor " + Printable(tensor->name),
                  "a float or quantized type", NameOf(tensor->dtype));
    }
  }

  [[noreturn]] void Refuse(const GgufTensor& tensor, uint64_t cols, uint64_t rows,
                           const std::string& of_base) const {
    throw Error(ErrorCode::kCorrupt, path(), "shape of " + Printable(tensor.name),
                fmt::format("[{}, {}]{}", cols, rows, of_base), ShapeText(tensor));
  }

  // Reserves room for `floats` numbers; returns where it begins, on a cache line.
  uint64_t Place(uint64_t floats) {
    const uint64_t offset = plan_.floats;
    plan_.floats += (floats + 15) / 16 * 16;
    return offset;
  }

  AdapterPlan& plan_;
  const GgufFile& file_;
  const FfnStorage ffn_;
  ModelWeights weights_;
  std::vector<WeightDecl> decls_;
};

}  // namespace

AdapterPlan PlanAdapter(const AdapterOption& option, const ModelSpec& spec, FfnStorage ffn) {
  AdapterPlan plan;
  plan.option = option;
  plan.file = std::make_unique<AdapterFile>(OpenAdapter(option.path, spec));
  Planner(plan, spec, ffn).Run();
  AdapterWeights ranks;
  ranks.layers.resize(static_cast<size_t>(spec.num_layers));
  for (const PlannedPair& pair : plan.pairs) {
    ranks.layers[static_cast<size_t>(pair.layer)][static_cast<size_t>(pair.which)].rank =
        static_cast<int64_t>(pair.a->ne[1]);
  }
  plan.widest_ranks = WidestRanks(ranks);
  return plan;
}

LoadedAdapter::LoadedAdapter(const AdapterPlan& plan, int64_t num_layers, Budget& budget)
    : path_(plan.option.path), memory_(budget, "adapters", plan.bytes()) {
  weights_.layers.resize(static_cast<size_t>(num_layers));
  ReadMatrices(plan);
  ChecksumStream hash;
  hash.Update({memory_.data(), memory_.size_bytes()});
  const float* const floats = reinterpret_cast<const float*>(memory_.data());
  for (const PlannedPair& pair : plan.pairs) {
    LowRankPair& out =
        weights_.layers[static_cast<size_t>(pair.layer)][static_cast<size_t>(pair.which)];
    out = {.a = floats + pair.a_offset,
           .b = floats + pair.b_offset,
           .rank = static_cast<int64_t>(pair.a->ne[1]),
           .cols = static_cast<int64_t>(pair.a->ne[0]),
           .rows = pair.rows,
           .scale = pair.scale};
    const int64_t numbers[] = {pair.layer, static_cast<int64_t>(pair.which), out.rank, out.cols,
                               out.rows};
    hash.Update(std::as_bytes(std::span(numbers)));
    hash.Update(std::as_bytes(std::span(&out.scale, 1)));
  }
  weights_.hash = std::max<uint64_t>(hash.Digest(), 1);
}

void LoadedAdapter::ReadMatrices(const AdapterPlan& plan) {
  const GgufFile& file = plan.file->file;
  auto* const floats = reinterpret_cast<float*>(memory_.data());
  const GgufTensor* last_a = nullptr;
  for (const PlannedPair& pair : plan.pairs) {
    if (pair.a != last_a) {  // parts of one tensor follow each other
      float* const a = floats + pair.a_offset;
      ReadAdapterRows(file, *pair.a, {0, pair.a->ne[1]},
                      [&](uint64_t row, std::span<const float> from) {
                        std::copy(from.begin(), from.end(), a + row * from.size());
                      });
      last_a = pair.a;
    }
    float* const b = floats + pair.b_offset;
    const auto rows = static_cast<uint64_t>(pair.rows);
    ReadAdapterRows(file, *pair.b, {static_cast<uint64_t>(pair.first_row), rows},
                    [&](uint64_t row, std::span<const float> from) {
                      for (size_t i = 0; i < from.size(); ++i) b[i * rows + row] = from[i];
                    });
  }
}

AdapterSet::AdapterSet(std::span<const AdapterPlan> plans, int64_t num_layers, Budget& budget) {
  std::vector<AdapterScale> scales;
  for (const AdapterPlan& plan : plans) {
    scales.push_back({std::ssize(adapters_), plan.option.weight});
    default_weights_.push_back(plan.option.weight);
    adapters_.push_back(std::make_unique<LoadedAdapter>(plan, num_layers, budget));
  }
  default_mix_ = Mix(scales);
}

AdapterMix AdapterSet::Mix(std::span<const AdapterScale> scales) const {
  std::map<int64_t, float> weights;
  for (const AdapterScale& scale : scales) {
    if (scale.id < 0 || scale.id >= std::ssize(adapters_)) {
      throw Error(ErrorCode::kInvalidArgument, Field{"adapters"}, "id of an adapter",
                  adapters_.empty() ? "none: none was loaded"
                                    : fmt::format("0 to {}", adapters_.size() - 1),
                  std::to_string(scale.id));
    }
    if (!(std::abs(scale.weight) <= kMostWeight)) {
      throw Error(ErrorCode::kInvalidArgument, Field{"adapters"}, "scale of an adapter",
                  fmt::format("-{0} to {0}", kMostWeight), fmt::format("{}", scale.weight));
    }
    if (!weights.emplace(scale.id, scale.weight).second) {
      throw Error(ErrorCode::kInvalidArgument, Field{"adapters"},
                  fmt::format("adapter {} is named twice", scale.id));
    }
  }
  std::vector<AdapterUse> uses;
  for (const auto& [id, weight] : weights) {
    uses.push_back({&adapters_[static_cast<size_t>(id)]->weights(), weight});
  }
  return AdapterMix(uses);
}

}  // namespace hearth
