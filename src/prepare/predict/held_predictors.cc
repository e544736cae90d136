#include "prepare/predict/held_predictors.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "ops/repack.h"

namespace hearth {
namespace {

constexpr size_t kAlignment = 64;

// The part of one FFN's predictor that a declaration of its layer asks for.
std::span<const std::byte> PartOf(const QuantizedPredictor& made, const WeightDecl& decl) {
  if (decl.is_vector) return std::as_bytes(std::span(made.bias));
  return decl.name.ends_with(".down") ? made.down : made.up;
}

WeightView ViewOf(const WeightDecl& decl, DType dtype) {
  return {.dtype = decl.is_vector ? DType::kF32 : dtype,
          .cols = decl.cols,
          .rows = decl.rows,
          .experts = decl.experts,
          .is_tiled = !decl.is_vector && TileLayout::IsTiled(dtype)};
}

size_t HeldBytes(const WeightView& view) {
  const size_t bytes = view.expert_bytes() * static_cast<size_t>(view.experts);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// One expert's part to `out`.
void Hold(std::span<const std::byte> stored, const WeightView& view, std::byte* out) {
  if (view.is_tiled) {
    PackTiles(view.dtype, stored, view.rows, view.cols, out);
  } else {
    std::memcpy(out, stored.data(), stored.size());
  }
}

}  // namespace

PredictorSpec SpecOf(const PredictorSet& set, const ModelSpec& model) {
  const int64_t experts = ExpertsOf(model);
  PredictorSpec spec;
  spec.input = set.input;
  spec.relu = set.relu;
  if (set.ffns.size() != static_cast<size_t>(model.num_layers * experts)) {
    throw Error(ErrorCode::kInternal, "predictors", "not one for every FFN");
  }
  for (size_t i = 0; i < set.ffns.size(); ++i) {
    const QuantizedPredictor& made = set.ffns[i];
    const int64_t first = static_cast<int64_t>(i) % experts;
    if (first == 0) spec.ranks.push_back(made.rank);
    if (made.rank != spec.ranks.back()) {
      throw Error(ErrorCode::kInternal, "predictors", "ranks differ among the experts of a layer");
    }
    spec.thresholds.push_back(made.threshold);
  }
  return spec;
}

HeldPredictors::HeldPredictors(const PredictorSet& set, const ModelSpec& model, Budget& budget) {
  const int64_t experts = ExpertsOf(model);
  const std::vector<WeightDecl> decls = DeclarePredictors(SpecOf(set, model), model, predictors_);
  size_t bytes = 0;
  for (const WeightDecl& decl : decls) bytes += HeldBytes(ViewOf(decl, set.dtype));
  memory_ = Buffer(budget, "predictors", bytes);
  std::byte* at = memory_.data();
  size_t next = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    if (predictors_.spec.ranks[static_cast<size_t>(layer)] == 0) continue;
    for (int part = 0; part < 3; ++part, ++next) {
      const WeightDecl& decl = decls[next];
      WeightView view = ViewOf(decl, set.dtype);
      view.data = at;
      const size_t expert_bytes = decl.is_vector ? view.row_bytes() : view.expert_bytes();
      const size_t bytes_of_part =
          view.row_bytes() * static_cast<size_t>(decl.is_vector ? 1 : decl.rows);
      for (int64_t e = 0; e < experts; ++e) {
        const std::span<const std::byte> from =
            PartOf(set.ffns[static_cast<size_t>(layer * experts + e)], decl);
        if (from.size() != bytes_of_part) {
          throw Error(ErrorCode::kInternal, decl.name, "bytes", std::to_string(bytes_of_part),
                      std::to_string(from.size()));
        }
        Hold(from, view, at + expert_bytes * static_cast<size_t>(e));
      }
      *decl.slot = view;
      at += HeldBytes(view);
    }
  }
}

void HeldPredictors::SetThreshold(int64_t layer, int64_t expert, float threshold) {
  const size_t experts = predictors_.spec.thresholds.size() / predictors_.layers.size();
  predictors_.spec.thresholds[static_cast<size_t>(layer) * experts + static_cast<size_t>(expert)] =
      threshold;
}

}  // namespace hearth
