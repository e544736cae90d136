#include "prepare/profile/activation_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/session/text_windows.h"
#include "engine/session/token_scores.h"
#include "sparsity/selector.h"

namespace hearth {
namespace {

constexpr int64_t kTrialTokens = 256;
constexpr int64_t kTrialPiece = 128;

// Gives the engine its own activation back.
class OwnActivation {
 public:
  explicit OwnActivation(Engine& engine) : engine_(engine), own_(Current(engine)) {}
  ~OwnActivation() { engine_.model().SetActivation(own_); }
  OwnActivation(const OwnActivation&) = delete;
  OwnActivation& operator=(const OwnActivation&) = delete;

  const FfnSpec& own() const { return own_; }

 private:
  static const FfnSpec& Current(const Engine& engine) { return MainFfn(engine.model().spec()); }

  Engine& engine_;
  const FfnSpec own_;
};

GivenActivation GivenOf(const FfnSpec& ffn) {
  if (ffn.activation != FfnActivation::kFatRelu) return {ffn.activation, std::nullopt};
  return {ffn.activation, ffn.threshold};
}

// What is tried, the engine's own first.
std::vector<GivenActivation> Candidates(const FfnSpec& own) {
  std::vector<GivenActivation> all = {GivenOf(own)};
  for (const FfnActivation activation : {FfnActivation::kRelu, FfnActivation::kFatRelu,
                                         FfnActivation::kDRelu, FfnActivation::kSilu}) {
    if (activation == own.activation) continue;
    const bool has_threshold = activation == FfnActivation::kFatRelu;
    all.push_back(
        {activation, has_threshold ? std::optional(kUsualFatReluThreshold) : std::nullopt});
  }
  return all;
}

double Mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Whether `other` foresees the same tokens clearly better than `own`.
bool IsClearlyBetter(std::span<const double> own, std::span<const double> other) {
  const double gain = Mean(own) - Mean(other);
  if (std::isnan(gain) || gain < kClearNats) return false;
  if (std::isinf(gain)) return true;
  double squares = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const double deviation = own[i] - other[i] - gain;
    squares += deviation * deviation;
  }
  const auto count = static_cast<double>(own.size());
  return gain >= kClearErrors * std::sqrt(squares / (count - 1) / count);
}

class Trial {
 public:
  Trial(Engine& engine, std::span<const TokenId> tokens, size_t num_candidates,
        const TrialProgressFn& progress)
      : engine_(engine),
        bos_(engine.model().tokenizer().special().bos),
        sample_(SpreadSample(tokens, kTrialTokens, kTrialPiece)),
        windows_(sample_, bos_, std::min(engine.context(), kTrialPiece + (bos_ >= 0 ? 1 : 0))),
        total_(windows_.total_tokens() * num_candidates),
        progress_(progress) {}

  // Nats of every token that is scored, in order.
  std::vector<double> Score() {
    std::vector<double> nats;
    for (uint64_t i = 0; i < windows_.size(); ++i) {
      const std::vector<TokenId> window = windows_.Window(i);
      ForAllLogits(
          engine_.pass(), engine_.kv_pool(), window, dense_, nullptr,
          [&](size_t position, std::span<const float> logits) {
            if (progress_) progress_(++done_, total_);
            if (position + 1 == window.size()) return;
            const double nll = NegativeLogLikelihood(logits, window[position + 1]);
            nats.push_back(std::isfinite(nll) ? nll : std::numeric_limits<double>::infinity());
          });
    }
    return nats;
  }

 private:
  Engine& engine_;
  const TokenId bos_;
  const std::vector<TokenId> sample_;
  const TextWindows windows_;
  const uint64_t total_;
  const TrialProgressFn& progress_;
  DenseSelector dense_;
  uint64_t done_ = 0;
};

}  // namespace

std::optional<ActivationTrial> TryActivations(Engine& engine, std::span<const TokenId> tokens,
                                              const TrialProgressFn& progress) {
  OwnActivation own(engine);
  if (own.own().activation == FfnActivation::kThresholdedSilu) return std::nullopt;
  if (std::ssize(tokens) < kLeastTrialTokens || engine.context() < kLeastTrialTokens) {
    return std::nullopt;
  }
  const std::vector<GivenActivation> candidates = Candidates(own.own());
  Trial trial(engine, tokens, candidates.size(), progress);
  std::vector<std::vector<double>> nats;
  ActivationTrial result;
  for (const GivenActivation& candidate : candidates) {
    FfnSpec ffn = own.own();
    ffn.activation = candidate.activation;
    ffn.threshold = candidate.threshold.value_or(0);
    engine.model().SetActivation(ffn);
    nats.push_back(trial.Score());
    result.scores.push_back({candidate, Mean(nats.back())});
  }
  result.tokens = std::ssize(nats.front());
  const auto best = std::min_element(
      result.scores.begin(), result.scores.end(),
      [](const auto& a, const auto& b) { return a.nll_per_token < b.nll_per_token; });
  const auto index = static_cast<size_t>(best - result.scores.begin());
  if (index > 0 && IsClearlyBetter(nats.front(), nats[index])) result.better = index;
  return result;
}

std::string ActivationTrialText(const ActivationTrial& trial) {
  std::string text = fmt::format("perplexity over {} tokens: ", trial.tokens);
  for (size_t i = 0; i < trial.scores.size(); ++i) {
    const ActivationScore& score = trial.scores[i];
    text += fmt::format("{}{} {:.4g}", i == 0 ? "" : ", ", ActivationText(score.activation),
                        std::exp(score.nll_per_token));
  }
  return text;
}

}  // namespace hearth
