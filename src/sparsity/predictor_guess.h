// What a predictor lists for any of a few tokens, in steps. The bits, and so the neurons, are
// PredictorSelector's.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/budget.h"
#include "base/buffer.h"
#include "ops/compute.h"
#include "ops/linear.h"
#include "sparsity/list_guess.h"
#include "sparsity/predictor.h"

namespace hearth {

// Indices in [begin, end) whose logit is above the threshold, ascending, to `out`, which has room
// for all; how many. A logit that is not a number is not above it.
int64_t ListAbove(const float* logits, int64_t begin, int64_t end, float threshold, int32_t* out);

// Widest of all predictors that a guess may be of.
struct PredictorWidths {
  int64_t hidden = 0;
  int64_t rank = 0;
  int64_t neurons = 0;
};

// Begin on one thread, with no step under way; then any thread takes steps. Allocates nothing.
class PredictorGuess final : public ListGuess {
 public:
  // Charged to `budget` as "activations". `compute` must outlive the object; of it only kernels are
  // used, never the team.
  PredictorGuess(const PredictorWidths& widths, int64_t max_tokens, Compute& compute,
                 Budget& budget);
  static uint64_t ChargedBytes(const PredictorWidths& widths, int64_t max_tokens);

  // Asks a predictor, which must live until the last step, about `inputs`, up to max_tokens rows of
  // [hidden], which are copied.
  void Begin(const PredictorView& predictor, FloatView inputs);
  int64_t max_tokens() const { return max_tokens_; }

  Step TakeStep() noexcept override;
  std::span<const int32_t> listed() const noexcept override {
    return {list_, static_cast<size_t>(num_listed_)};
  }

 private:
  // The product with one of the predictor's two matrices.
  struct Stage {
    Product product;
    FloatView x;
    const kernels::BlockQ8* q8 = nullptr;
    int64_t rows_of_step = 0;
    int64_t steps = 0;
    std::atomic<int64_t> taken{0};
    std::atomic<int64_t> finished{0};
  };

  static void Prepare(const Product& product, MatMulInput& input, FloatView x, Stage& stage);
  void List();

  Compute& compute_;
  const int64_t max_tokens_;
  MatMulInput hidden_input_;
  MatMulInput inner_input_;
  Buffer scratch_;
  // Views into scratch_.
  float* input_;   // [max_tokens][hidden]
  float* inner_;   // [max_tokens][rank]
  float* logits_;  // [max_tokens][neurons]
  int32_t* list_;
  PredictorView predictor_;
  Stage down_, up_;
  std::atomic<Stage*> at_{nullptr};  // null: nothing left
  int64_t num_listed_ = 0;
};

}  // namespace hearth
