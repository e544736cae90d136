#include "measure/evaluate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "engine/session/text_windows.h"
#include "engine/session/token_scores.h"
#include "sparsity/selector.h"

namespace hearth {
namespace {

void CheckText(std::span<const TokenId> tokens, TokenId bos, int64_t context) {
  const auto room = static_cast<uint64_t>(context);
  const uint64_t count = tokens.size() + (bos >= 0 ? 1 : 0);
  if (room >= 2 && count >= 2) return;
  throw Error(ErrorCode::kInvalidArgument, "eval", "there is nothing to score",
              "a context and a text of at least 2 tokens", std::to_string(std::min(room, count)));
}

void CheckNumber(double nll, const std::string& model) {
  if (!std::isfinite(nll)) throw Error(ErrorCode::kCorrupt, model, "its logits are not numbers");
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
      Run(window, dense, nullptr, [this](size_t, std::span<const float> logits) {
        likeliest_.push_back(LikeliestToken(logits));
      });
    }
    Run(window, engine_.selector(), &meter_,
        [&](size_t position, std::span<const float> logits) { Score(window, position, logits); });
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
  void Run(std::span<const TokenId> window, ActivationSelector& selector, PassObserver* observer,
           const LogitsFn& fn) {
    ForAllLogits(engine_.pass(), engine_.kv_pool(), window, selector, observer, fn);
  }

  // The logits of a position foretell the next token of the window.
  void Score(std::span<const TokenId> window, size_t position, std::span<const float> logits) {
    if (!likeliest_.empty()) {
      meter_.CountTop1(LikeliestToken(logits) == likeliest_[position]);
    }
    if (position + 1 == window.size()) return;
    nll_ += NegativeLogLikelihood(logits, window[position + 1]);
    ++scored_;
    CheckNumber(nll_, engine_.model().path());
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

std::vector<TokenId> SampleToScore(std::span<const TokenId> text) {
  constexpr int64_t kTokens = 4096;
  return SpreadSample(text, kTokens, kSampleContext);
}

double TextScore::perplexity() const { return std::exp(nll_per_token); }

TextScore ScoreText(TransformerPass& pass, KvPool& kv_pool, ActivationSelector& selector,
                    std::span<const TokenId> tokens, const ScoreOptions& options) {
  CheckText(tokens, options.bos, options.context);
  const TextWindows windows(tokens, options.bos, options.context);
  TextScore score;
  uint64_t done = 0;
  for (uint64_t i = 0; i < windows.size(); ++i) {
    const std::vector<TokenId> window = windows.Window(i);
    ForAllLogits(pass, kv_pool, window, selector, nullptr,
                 [&](size_t position, std::span<const float> logits) {
                   if (options.progress) options.progress(++done, windows.total_tokens());
                   if (position + 1 == window.size()) return;
                   score.nll_per_token += NegativeLogLikelihood(logits, window[position + 1]);
                   ++score.tokens;
                 });
  }
  CheckNumber(score.nll_per_token, options.model);
  score.nll_per_token /= static_cast<double>(score.tokens);
  return score;
}

EvalResult EvaluateText(Engine& engine, std::span<const TokenId> tokens,
                        const EvalProgressFn& progress) {
  const TokenId bos = engine.model().tokenizer().special().bos;
  CheckText(tokens, bos, engine.context());
  Evaluation evaluation(engine, tokens.size(), progress);
  const TextWindows windows(tokens, bos, engine.context());
  for (uint64_t i = 0; i < windows.size(); ++i) {
    const std::vector<TokenId> window = windows.Window(i);
    if (window.size() > 1) evaluation.Window(window);
  }
  return evaluation.Result();
}

}  // namespace hearth
