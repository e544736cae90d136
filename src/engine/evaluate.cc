#include "engine/evaluate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "engine/text_windows.h"
#include "sparsity/selector.h"

namespace hearth {
namespace {

// -log softmax(logits)[target], summed in double.
double NegativeLogLikelihood(std::span<const float> logits, TokenId target) {
  const double best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  return best + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(target)]);
}

// Runs windows and adds up scores.
class Evaluation {
 public:
  Evaluation(Engine& engine, uint64_t total, const EvalProgressFn& progress)
      : engine_(engine), total_(total), progress_(progress), meter_(engine.model().spec()) {}

  void Window(std::span<const TokenId> window) {
    likeliest_.clear();
    if (engine_.mode() != FfnMode::kDense) {
      DenseSelector dense;
      Run(window, dense, nullptr, [this](FloatView logits, int64_t rows, size_t) {
        for (int64_t r = 0; r < rows; ++r) likeliest_.push_back(Likeliest(logits, r));
      });
    }
    Run(window, engine_.selector(), &meter_,
        [&](FloatView logits, int64_t rows, size_t begin) { Score(window, logits, rows, begin); });
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
  // Calls fn(logits, rows, position of the first) for all positions of the window.
  template <typename F>
  void Run(std::span<const TokenId> window, ActivationSelector& selector, ForwardObserver* observer,
           F&& fn) {
    KvSequence kv(engine_.kv_pool());
    RunInChunks(engine_, kv, window, selector, observer, [&](size_t begin, size_t count) {
      for (size_t i = 0; i < count; i += Forward::kMaxLogitRows) {
        const size_t rows = std::min<size_t>(Forward::kMaxLogitRows, count - i);
        fn(engine_.forward().Logits(static_cast<int64_t>(i), static_cast<int64_t>(rows)),
           static_cast<int64_t>(rows), begin + i);
      }
      return true;
    });
  }

  TokenId Likeliest(FloatView logits, int64_t row) const {
    const float* first = logits.row(row);
    return static_cast<TokenId>(std::max_element(first, first + logits.cols) - first);
  }

  // The logits of position p foretell token p + 1 of the window.
  void Score(std::span<const TokenId> window, FloatView logits, int64_t rows, size_t begin) {
    const auto vocab = static_cast<size_t>(logits.cols);
    for (int64_t r = 0; r < rows; ++r) {
      const size_t position = begin + static_cast<size_t>(r);
      if (!likeliest_.empty()) meter_.CountTop1(Likeliest(logits, r) == likeliest_[position]);
      if (position + 1 == window.size()) continue;
      nll_ += NegativeLogLikelihood({logits.row(r), vocab}, window[position + 1]);
      ++scored_;
    }
    if (!std::isfinite(nll_)) {
      throw Error(ErrorCode::kCorrupt, engine_.model().path(), "its logits are not numbers");
    }
    if (progress_ && scored_ > 0) {
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
