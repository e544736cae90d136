#include "engine/evaluate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
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

class ActivityCounter : public ForwardObserver {
 public:
  void OnFfnActivation(int64_t, int64_t, std::span<const int64_t>, FloatView a) override {
    for (int64_t r = 0; r < a.rows; ++r) {
      active_ += a.cols - std::count(a.row(r), a.row(r) + a.cols, 0.0f);
      neurons_ += a.cols;
    }
  }
  double share() const {
    return neurons_ > 0 ? static_cast<double>(active_) / static_cast<double>(neurons_) : 0;
  }

 private:
  int64_t active_ = 0;
  int64_t neurons_ = 0;
};

// Runs windows and adds up scores.
class Evaluation {
 public:
  Evaluation(Engine& engine, uint64_t total, const EvalProgressFn& progress)
      : engine_(engine), total_(total), progress_(progress) {}

  void Window(std::span<const TokenId> window) {
    KvSequence kv(engine_.kv_pool());
    const auto chunk = static_cast<size_t>(engine_.forward().limits().max_tokens);
    for (size_t begin = 0; begin < window.size(); begin += chunk) {
      const size_t count = std::min(chunk, window.size() - begin);
      const BatchSequence sequence{&kv, window.subspan(begin, count)};
      engine_.forward().Run({&sequence, 1}, selector_, &counter_);
      Score(window, begin, count);
    }
  }

  EvalResult Result() const {
    EvalResult result;
    result.tokens = scored_;
    result.nll_per_token = nll_ / static_cast<double>(scored_);
    result.perplexity = std::exp(result.nll_per_token);
    if (engine_.model().spec().layers.front().ffn.activation != FfnActivation::kSilu) {
      result.active_share = counter_.share();
    }
    return result;
  }

 private:
  // Row i of the last pass foretells token begin + i + 1 of the window.
  void Score(std::span<const TokenId> window, size_t begin, size_t count) {
    const auto vocab = static_cast<size_t>(engine_.model().spec().vocab_size);
    for (size_t i = 0; i < count; i += Forward::kMaxLogitRows) {
      const size_t rows = std::min<size_t>(Forward::kMaxLogitRows, count - i);
      const FloatView logits =
          engine_.forward().Logits(static_cast<int64_t>(i), static_cast<int64_t>(rows));
      for (size_t r = 0; r < rows && begin + i + r + 1 < window.size(); ++r) {
        nll_ += NegativeLogLikelihood({logits.row(static_cast<int64_t>(r)), vocab},
                                      window[begin + i + r + 1]);
        ++scored_;
      }
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
  DenseSelector selector_;
  ActivityCounter counter_;
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
  std::vector<TokenId> window;
  for (size_t begin = 0; begin < tokens.size(); begin += context - extra) {
    const auto piece = tokens.subspan(begin, std::min(context - extra, tokens.size() - begin));
    window.clear();
    if (bos >= 0) window.push_back(bos);
    window.insert(window.end(), piece.begin(), piece.end());
    if (window.size() > 1) evaluation.Window(window);
  }
  return evaluation.Result();
}

}  // namespace hearth
