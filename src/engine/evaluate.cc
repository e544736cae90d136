#include "engine/evaluate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "engine/text_windows.h"
#include "engine/token_scores.h"
#include "sparsity/selector.h"

namespace hearth {
namespace {

// Runs windows and adds up scores.
class Evaluation {
 public:
  Evaluation(Engine& engine, uint64_t total, const EvalProgressFn& progress)
      : engine_(engine), total_(total), progress_(progress), meter_(engine.model().spec()) {}

  void Window(std::span<const TokenId> window) {
    likeliest_.clear();
    if (engine_.mode() != FfnMode::kDense) {
      DenseSelector dense;
      Run(window, dense, nullptr, [this](size_t, std::span<const float> logits) {
        likeliest_.push_back(LikeliestToken(logits));
      });
    }
    Run(window, engine_.selector(), &meter_, [&](size_t position, std::span<const float> logits) {
      Score(window, position, logits);
    });
  }

  EvalResult Result() const {
    EvalResult result;
    result.tokens = scored_;
    result.nll_per_token = nll_ / static_cast<double>(scored_);
    result.perplexity = std::exp(result.nll_per_token);
    result.quality = meter_.Result();
    return result;
  }

 private:
  void Run(std::span<const TokenId> window, ActivationSelector& selector, ForwardObserver* observer,
           const LogitsFn& fn) {
    ForAllLogits(engine_.forward(), engine_.kv_pool(), window, selector, observer, fn);
  }

  // The logits of a position foretell the next token of the window.
  void Score(std::span<const TokenId> window, size_t position, std::span<const float> logits) {
    if (!likeliest_.empty()) {
      meter_.CountTop1(LikeliestToken(logits) == likeliest_[position]);
    }
    if (position + 1 == window.size()) return;
    nll_ += NegativeLogLikelihood(logits, window[position + 1]);
    ++scored_;
    if (!std::isfinite(nll_)) {
      throw Error(ErrorCode::kCorrupt, engine_.model().path(), "its logits are not numbers");
    }
    if (progress_) {
      progress_(static_cast<uint64_t>(scored_), total_, nll_ / static_cast<double>(scored_));
    }
  }

  Engine& engine_;
  const uint64_t total_;
  const EvalProgressFn& progress_;
  QualityMeter meter_;
  std::vector<TokenId> likeliest_;  // after every position of the window, by the dense model
  double nll_ = 0;
  int64_t scored_ = 0;
};

}  // namespace

EvalResult EvaluateText(Engine& engine, std::span<const TokenId> tokens,
                        const EvalProgressFn& progress) {
  const TokenId bos = engine.model().tokenizer().special().bos;
  const size_t extra = bos >= 0 ? 1 : 0;
  const auto context = static_cast<size_t>(engine.context());
  if (context < 2 || tokens.size() + extra < 2) {
    throw Error(ErrorCode::kInvalidArgument, "eval", "there is nothing to score",
                "a context and a text of at least 2 tokens",
                std::to_string(std::min(context, tokens.size() + extra)));
  }
  Evaluation evaluation(engine, tokens.size(), progress);
  const TextWindows windows(tokens, bos, engine.context());
  for (uint64_t i = 0; i < windows.size(); ++i) {
    const std::vector<TokenId> window = windows.Window(i);
    if (window.size() > 1) evaluation.Window(window);
  }
  return evaluation.Result();
}

}  // namespace hearth
