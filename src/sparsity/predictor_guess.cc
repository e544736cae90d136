#include "sparsity/predictor_guess.h"

#include <algorithm>
#include <cstring>

#include "base/rounding.h"
#include "ops/scratch_places.h"

namespace hearth {
namespace {

// Weights that a step takes in.
constexpr int64_t kStepBytes = 256 << 10;

struct Places {
  size_t input, inner, logits, list, end;

  explicit Places(const PredictorWidths& widths) {
    ScratchPlaces scratch;
    input = scratch.Take(widths.hidden, sizeof(float));
    inner = scratch.Take(widths.rank, sizeof(float));
    logits = scratch.Take(widths.neurons, sizeof(float));
    list = scratch.Take(widths.neurons, sizeof(int32_t));
    end = scratch.used();
  }
};

FloatView RowOf(float* values, int64_t count) { return {values, 1, count, count}; }

}  // namespace

int64_t ListAbove(const float* logits, int64_t begin, int64_t end, float threshold, int32_t* out) {
  int64_t count = 0;
  // Without branches: which neurons fire is what a branch predictor cannot know.
  for (int64_t i = begin; i < end; ++i) {
    out[count] = static_cast<int32_t>(i);
    count += logits[i] > threshold ? 1 : 0;
  }
  return count;
}

PredictorGuess::PredictorGuess(const PredictorWidths& widths, Compute& compute, Budget& budget)
    : compute_(compute),
      hidden_input_(budget, 1, widths.hidden),
      inner_input_(budget, 1, widths.rank),
      scratch_(budget, "activations", Places(widths).end) {
  const Places at(widths);
  std::byte* base = scratch_.data();
  input_ = reinterpret_cast<float*>(base + at.input);
  inner_ = reinterpret_cast<float*>(base + at.inner);
  logits_ = reinterpret_cast<float*>(base + at.logits);
  list_ = reinterpret_cast<int32_t*>(base + at.list);
}

uint64_t PredictorGuess::ChargedBytes(const PredictorWidths& widths) {
  return MatMulInput::ChargedBytes(1, widths.hidden) + MatMulInput::ChargedBytes(1, widths.rank) +
         Buffer::ChargedBytes(Places(widths).end);
}

void PredictorGuess::Prepare(const Product& product, MatMulInput& input, FloatView x,
                             Stage& stage) {
  const WeightView& weights = product.weights;
  input.Set(x);
  stage.product = product;
  stage.x = x;
  stage.q8 = nullptr;
  const auto row_bytes =
      static_cast<int64_t>(weights.expert_bytes() / static_cast<uint64_t>(weights.rows));
  stage.rows_of_step = std::max<int64_t>(
      RoundUp(kStepBytes / std::max<int64_t>(row_bytes, 1), kMatMulRowGrain), kMatMulRowGrain);
  stage.steps = (weights.rows + stage.rows_of_step - 1) / stage.rows_of_step;
  stage.taken.store(0, std::memory_order_relaxed);
  stage.finished.store(0, std::memory_order_relaxed);
}

void PredictorGuess::Begin(const PredictorView& predictor, const float* input) {
  predictor_ = predictor;
  const int64_t hidden = predictor.down.cols, rank = predictor.rank(), neurons = predictor.up.rows;
  std::memcpy(input_, input, static_cast<size_t>(hidden) * sizeof(float));
  Prepare({predictor.down, RowOf(inner_, rank)}, hidden_input_, RowOf(input_, hidden), down_);
  Prepare(
      {predictor.up, RowOf(logits_, neurons), reinterpret_cast<const float*>(predictor.bias.data)},
      inner_input_, RowOf(inner_, rank), up_);
  if (predictor.down.is_tiled) down_.q8 = hidden_input_.QuantizedRow(compute_, 0);
  num_listed_ = 0;
  at_.store(&down_, std::memory_order_release);
}

ListGuess::Step PredictorGuess::TakeStep() noexcept {
  Stage* at = at_.load(std::memory_order_acquire);
  if (at == nullptr || at->taken.load(std::memory_order_relaxed) >= at->steps) return Step::kNone;
  const int64_t step = at->taken.fetch_add(1, std::memory_order_relaxed);
  if (step >= at->steps) return Step::kNone;
  const int64_t begin = step * at->rows_of_step;
  MatMulRows(compute_, at->product, at->x, at->q8, begin,
             std::min(begin + at->rows_of_step, at->product.weights.rows));
  if (at->finished.fetch_add(1, std::memory_order_acq_rel) + 1 < at->steps) return Step::kSome;
  if (at == &up_) {
    num_listed_ = ListAbove(logits_, 0, predictor_.up.rows, predictor_.threshold, list_);
    at_.store(nullptr, std::memory_order_release);
    return Step::kLast;
  }
  if (predictor_.relu) {
    for (float* x = inner_; x < inner_ + predictor_.rank(); ++x) *x = std::max(*x, 0.0f);
  }
  if (predictor_.up.is_tiled) up_.q8 = inner_input_.QuantizedRow(compute_, 0);
  at_.store(&up_, std::memory_order_release);
  return Step::kSome;
}

}  // namespace hearth
