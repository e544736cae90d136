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

  Places(const PredictorWidths& widths, int64_t tokens) {
    ScratchPlaces scratch;
    input = scratch.Take(tokens * widths.hidden, sizeof(float));
    inner = scratch.Take(tokens * widths.rank, sizeof(float));
    logits = scratch.Take(tokens * widths.neurons, sizeof(float));
    list = scratch.Take(widths.neurons, sizeof(int32_t));
    end = scratch.used();
  }
};

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

PredictorGuess::PredictorGuess(const PredictorWidths& widths, int64_t max_tokens, Compute& compute,
                               Budget& budget)
    : compute_(compute),
      max_tokens_(max_tokens),
      hidden_input_(budget, max_tokens, widths.hidden),
      inner_input_(budget, max_tokens, widths.rank),
      scratch_(budget, "activations", Places(widths, max_tokens).end) {
  const Places at(widths, max_tokens);
  std::byte* base = scratch_.data();
  input_ = reinterpret_cast<float*>(base + at.input);
  inner_ = reinterpret_cast<float*>(base + at.inner);
  logits_ = reinterpret_cast<float*>(base + at.logits);
  list_ = reinterpret_cast<int32_t*>(base + at.list);
}

uint64_t PredictorGuess::ChargedBytes(const PredictorWidths& widths, int64_t max_tokens) {
  return MatMulInput::ChargedBytes(max_tokens, widths.hidden) +
         MatMulInput::ChargedBytes(max_tokens, widths.rank) +
         Buffer::ChargedBytes(Places(widths, max_tokens).end);
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

void PredictorGuess::Begin(const PredictorView& predictor, FloatView inputs) {
  predictor_ = predictor;
  const int64_t hidden = predictor.down.cols, rank = predictor.rank(), neurons = predictor.up.rows;
  for (int64_t i = 0; i < inputs.rows; ++i) {
    std::memcpy(input_ + i * hidden, inputs.row(i), static_cast<size_t>(hidden) * sizeof(float));
  }
  const FloatView x = {input_, inputs.rows, hidden, hidden};
  const FloatView inner = {inner_, inputs.rows, rank, rank};
  const FloatView logits = {logits_, inputs.rows, neurons, neurons};
  Prepare({predictor.down, inner}, hidden_input_, x, down_);
  Prepare({predictor.up, logits, reinterpret_cast<const float*>(predictor.bias.data)}, inner_input_,
          inner, up_);
  if (predictor.down.is_tiled) down_.q8 = hidden_input_.QuantizedAlone(compute_);
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
    List();
    at_.store(nullptr, std::memory_order_release);
    return Step::kLast;
  }
  if (predictor_.relu) {
    float* end = inner_ + up_.x.rows * predictor_.rank();
    for (float* x = inner_; x < end; ++x) *x = std::max(*x, 0.0f);
  }
  if (predictor_.up.is_tiled) up_.q8 = inner_input_.QuantizedAlone(compute_);
  at_.store(&up_, std::memory_order_release);
  return Step::kSome;
}

// The highest logit of all tokens decides. No comparison holds for one that is not a number.
void PredictorGuess::List() {
  const int64_t neurons = predictor_.up.rows;
  const FloatView& logits = up_.product.out;
  for (int64_t i = 1; i < logits.rows; ++i) {
    const float* row = logits.row(i);
    for (int64_t n = 0; n < neurons; ++n) {
      logits_[n] = logits_[n] > row[n] || row[n] != row[n] ? logits_[n] : row[n];
    }
  }
  num_listed_ = ListAbove(logits_, 0, neurons, predictor_.threshold, list_);
}

}  // namespace hearth
