#include "prepare/pack/mode_choice.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "measure/statistics.h"

namespace hearth {
namespace {

constexpr int64_t kPromptTokens = 64;
constexpr int64_t kDecodeTokens = kModeTokens - kPromptTokens;
// Large models take seconds for this many rounds, small ones make more.
constexpr int kMinRounds = 3;
constexpr int kMaxRounds = 50;
constexpr double kSeconds = 1;
constexpr double kTie = 1.03;

class ModeMeter {
 public:
  ModeMeter(Engine& engine, std::span<const TokenId> tokens) : engine_(engine), tokens_(tokens) {}

  // A prompt and what follows it, in one mode.
  ModeSpeed Once(FfnMode mode) {
    DenseSelector exact(mode);
    const bool predicts = mode == FfnMode::kPredicted;
    // As the engine does: predictors are for single tokens.
    DenseSelector gated(FfnMode::kGated);
    ActivationSelector& single = predicts ? engine_.selector() : exact;
    ActivationSelector& prompt = predicts ? gated : exact;
    KvSequence kv(engine_.kv_pool());
    const int64_t limit = engine_.pass().limits().max_tokens;
    const Stopwatch prompt_watch;
    for (int64_t done = 0; done < kPromptTokens; done += std::min(limit, kPromptTokens - done)) {
      Pass(PassKind::kPrefill, kv, std::min(limit, kPromptTokens - done), prompt);
    }
    ModeSpeed speed{mode, 0, static_cast<double>(kPromptTokens) / prompt_watch.Seconds()};
    const Stopwatch decode_watch;
    for (int64_t i = 0; i < kDecodeTokens; ++i) Pass(PassKind::kDecode, kv, 1, single);
    speed.decode_tok_s = static_cast<double>(kDecodeTokens) / decode_watch.Seconds();
    return speed;
  }

 private:
  void Pass(PassKind kind, KvSequence& kv, int64_t count, ActivationSelector& selector) {
    const auto begin = static_cast<size_t>(kv.length());
    const BatchSequence sequence{&kv, tokens_.subspan(begin, static_cast<size_t>(count))};
    engine_.pass().Run({kind, {&sequence, 1}}, selector);
    engine_.pass().Logits(count - 1, 1);
  }

  Engine& engine_;
  std::span<const TokenId> tokens_;
};

}  // namespace

std::vector<ModeSpeed> MeasureModes(Engine& engine, std::span<const TokenId> tokens,
                                    std::span<const FfnMode> modes,
                                    const ModeProgressFn& progress) {
  if (std::ssize(tokens) < kModeTokens || engine.context() < kModeTokens) {
    throw Error(ErrorCode::kInvalidArgument, "modes", "tokens and context to measure speeds with",
                std::to_string(kModeTokens),
                std::to_string(std::min<int64_t>(std::ssize(tokens), engine.context())));
  }
  ModeMeter meter(engine, tokens);
  std::vector<std::vector<double>> decode(modes.size()), prefill(modes.size());
  meter.Once(modes.back());  // the first use of memory and threads costs what no later one does
  const Stopwatch all;
  for (int round = 0; round < kMinRounds || (round < kMaxRounds && all.Seconds() < kSeconds);
       ++round) {
    for (size_t i = 0; i < modes.size(); ++i) {
      const ModeSpeed speed = meter.Once(modes[i]);
      decode[i].push_back(speed.decode_tok_s);
      prefill[i].push_back(speed.prefill_tok_s);
      const double rounds = round + static_cast<double>(i + 1) / static_cast<double>(modes.size());
      if (progress) progress(std::min(1.0, rounds / kMinRounds));
    }
  }
  std::vector<ModeSpeed> speeds;
  for (size_t i = 0; i < modes.size(); ++i) {
    speeds.push_back({modes[i], Median(decode[i]), Median(prefill[i])});
  }
  return speeds;
}

FfnMode ChooseMode(std::span<const ModeSpeed> speeds) {
  const ModeSpeed& dense = speeds.front();
  ModeSpeed best = dense;
  for (const ModeSpeed& speed : speeds) {
    if (speed.decode_tok_s > kTie * best.decode_tok_s &&
        kTie * speed.prefill_tok_s >= dense.prefill_tok_s) {
      best = speed;
    }
  }
  return best.mode;
}

}  // namespace hearth
