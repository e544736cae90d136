#include "prepare/held_predictors.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/dequantize.h"
#include "ops/repack.h"

namespace hearth {
namespace {

constexpr size_t kAlignment = 64;

// The part of one FFN's predictor that a declaration of its layer asks for.
const std::vector<float>& PartOf(const MadePredictor& made, const WeightDecl& decl) {
  if (decl.is_vector) return made.bias;
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

// One expert's part to `out`; of the bias, one row.
void Hold(const std::vector<float>& values, const WeightView& view, std::byte* out) {
  if (view.dtype == DType::kF32) {
    std::memcpy(out, values.data(), values.size() * sizeof(float));
    return;
  }
  std::vector<std::byte> stored(RowBytes(view.dtype, values.size()));
  kernels::Quantize(view.dtype, values.data(), static_cast<int64_t>(values.size()), stored.data());
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
    const MadePredictor& made = set.ffns[i];
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
      const auto values = static_cast<size_t>(decl.is_vector ? decl.cols : decl.cols * decl.rows);
      for (int64_t e = 0; e < experts; ++e) {
        const std::vector<float>& from =
            PartOf(set.ffns[static_cast<size_t>(layer * experts + e)], decl);
        if (from.size() != values) {
          throw Error(ErrorCode::kInternal, decl.name, "weights", std::to_string(values),
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
