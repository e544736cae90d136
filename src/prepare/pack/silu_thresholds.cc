#include "prepare/pack/silu_thresholds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "engine/load/engine_plan.h"
#include "engine/session/text_windows.h"
#include "prepare/pack/text_parts.h"

namespace hearth {
namespace {

// Of the text that is scored, as many are enough to know how a layer's activations are spread.
constexpr int64_t kSpreadTokens = 1024;
// |silu(gate)| is counted in steps of a sixteenth of an octave, from 2^-20 to 2^8.
constexpr int kStepsPerOctave = 16;
constexpr int kLowestOctave = -20;
constexpr int kOctaves = 28;
constexpr int kSteps = kStepsPerOctave * kOctaves;
// Shares of energy are sought between these, halving their logarithm so often.
constexpr double kSmallestShare = 1e-5;
constexpr double kLargestShare = 0.5;
constexpr int kTrials = 8;

// How the neurons of one layer are spread over |silu(gate)|. What is below the lowest step counts
// to it, what is over the highest to that.
struct Spread {
  std::array<double, kSteps> energy = {};
  std::array<uint64_t, kSteps> neurons = {};

  void Add(float gate, float up) {
    const double g = static_cast<double>(gate);
    const double silu = std::abs(g / (1 + std::exp(-g)));
    const double place = (std::log2(silu) - kLowestOctave) * kStepsPerOctave;
    const auto step = static_cast<size_t>(std::clamp(place, 0.0, double{kSteps - 1}));
    const double product = silu * static_cast<double>(up);
    energy[step] += product * product;
    ++neurons[step];
  }

  // Where step `step` begins; nothing lies below the first.
  static double Bound(size_t step) {
    return step == 0 ? 0 : std::exp2(kLowestOctave + static_cast<double>(step) / kStepsPerOctave);
  }

  // The first step that is kept where at most `share` of the energy is given up.
  size_t FirstKept(double share) const {
    double all = 0;
    for (const double e : energy) all += e;
    double given_up = 0;
    size_t step = 0;
    while (step + 1 < energy.size() && given_up + energy[step] <= share * all) {
      given_up += energy[step++];
    }
    return step;
  }
};

class SpreadObserver : public PassObserver {
 public:
  explicit SpreadObserver(int64_t num_layers) : layers(static_cast<size_t>(num_layers)) {}

  // On one thread, in order: sums must not depend on who adds.
  void OnFfnGateUp(int64_t layer, int64_t, std::span<const int64_t>, FloatView gate,
                   FloatView up) override {
    Spread& spread = layers[static_cast<size_t>(layer)];
    for (int64_t r = 0; r < gate.rows; ++r) {
      for (int64_t j = 0; j < gate.cols; ++j) spread.Add(gate.row(r)[j], up.row(r)[j]);
    }
  }

  std::vector<Spread> layers;
};

class Calibration {
 public:
  Calibration(Engine& engine, std::span<const TokenId> tokens, const SiluProgressFn& progress)
      : engine_(engine),
        progress_(progress),
        parts_(SplitText(tokens)),
        sample_(SampleToScore(parts_.last)),
        context_(std::min(engine.context(), kSampleContext)),
        bos_(engine.model().tokenizer().special().bos),
        observer_(engine.model().spec().num_layers),
        spec_(Thresholded(engine.model().spec())),
        trial_(engine.MakePass(spec_, engine.pass().limits())) {
    const uint64_t all = TextWindows(sample_, bos_, context_).total_tokens();
    total_tokens_ = all * (kTrials + 1) + std::min<uint64_t>(parts_.first.size(), kSpreadTokens);
  }

  SiluCalibration Run(double max_change) {
    SiluCalibration best;
    best.before = best.after = Score(engine_.pass());
    Observe();
    best.thresholds = Thresholds(0);
    best.active = 1;
    double low = std::log(kSmallestShare), high = std::log(kLargestShare);
    for (int i = 0; i < kTrials; ++i) {
      const double share = std::exp((low + high) / 2);
      const std::vector<float> thresholds = Thresholds(share);
      for (size_t l = 0; l < thresholds.size(); ++l) {
        spec_.layers[l].ffn.threshold = thresholds[l];
      }
      const TextScore after = Score(*trial_);
      const double change = after.perplexity() / best.before.perplexity() - 1;
      const bool is_allowed = std::abs(change) <= max_change;
      (is_allowed ? low : high) = std::log(share);
      if (!is_allowed) continue;
      best.thresholds = thresholds;
      best.after = after;
      best.active = Active(share);
    }
    return best;
  }

 private:
  static ModelSpec Thresholded(ModelSpec spec) {
    ThresholdSilu(std::vector<float>(spec.layers.size()), &spec);
    return spec;
  }

  TextScore Score(TransformerPass& pass) {
    ScoreOptions options;
    options.bos = bos_;
    options.context = context_;
    options.model = engine_.model().path();
    options.progress = [this](uint64_t, uint64_t) { Report(1); };
    return ScoreText(pass, engine_.kv_pool(), dense_, sample_, options);
  }

  void Observe() {
    const std::vector<TokenId> tokens = SpreadSample(parts_.first, kSpreadTokens, context_);
    const TextWindows windows(tokens, bos_, context_);
    for (uint64_t i = 0; i < windows.size(); ++i) {
      KvSequence kv(engine_.kv_pool());
      RunInChunks(engine_.pass(), kv, windows.Window(i), dense_, &observer_,
                  [this](size_t, size_t count) {
                    Report(count);
                    return true;
                  });
    }
  }

  std::vector<float> Thresholds(double share) const {
    std::vector<float> thresholds;
    for (const Spread& layer : observer_.layers) {
      thresholds.push_back(static_cast<float>(Spread::Bound(layer.FirstKept(share))));
    }
    return thresholds;
  }

  double Active(double share) const {
    double kept = 0, all = 0;
    for (const Spread& layer : observer_.layers) {
      const size_t first = layer.FirstKept(share);
      for (size_t step = 0; step < layer.neurons.size(); ++step) {
        all += static_cast<double>(layer.neurons[step]);
        if (step >= first) kept += static_cast<double>(layer.neurons[step]);
      }
    }
    return all > 0 ? kept / all : 1;
  }

  void Report(uint64_t tokens) {
    done_tokens_ += tokens;
    if (progress_) progress_(std::min(done_tokens_, total_tokens_), total_tokens_);
  }

  Engine& engine_;
  const SiluProgressFn& progress_;
  const TextParts parts_;  // what energies are of, and what their share is tuned on
  const std::vector<TokenId> sample_;
  const int64_t context_;
  const TokenId bos_;
  DenseSelector dense_;
  SpreadObserver observer_;
  ModelSpec spec_;                          // with the thresholds that are tried
  std::unique_ptr<TransformerPass> trial_;  // reads spec_
  uint64_t done_tokens_ = 0;
  uint64_t total_tokens_ = 0;
};

}  // namespace

uint64_t SiluCalibrationBytes(const GgufFile& file, const EngineOptions& options) {
  const EnginePlan plan = PlanEngine(file, options);
  return TransformerPass::ChargedBytes(plan.load.spec, plan.limits, plan.threads);
}

SiluCalibration CalibrateSilu(Engine& engine, std::span<const TokenId> tokens, double max_change,
                              const SiluProgressFn& progress) {
  if (!(max_change > 0)) {
    throw Error(ErrorCode::kInvalidArgument, "thresholds of SiLU", "change of perplexity",
                "a positive number", std::to_string(max_change));
  }
  if (engine.model().weights().ffns_have_rows()) {
    throw Error(ErrorCode::kUnsupported, engine.model().path(),
                "thresholds of SiLU are set for the model that a packed file comes from");
  }
  return Calibration(engine, tokens, progress).Run(max_change);
}

}  // namespace hearth
