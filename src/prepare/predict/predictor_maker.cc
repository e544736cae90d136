#include "prepare/predict/predictor_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/units.h"
#include "engine/session/text_windows.h"
#include "format/packed_file.h"
#include "kernels/dequantize.h"
#include "ops/sparse_ffn.h"
#include "prepare/predict/held_predictors.h"
#include "prepare/predict/layer_predictors.h"
#include "prepare/predict/predictor_memory.h"
#include "prepare/predict/predictor_state.h"
#include "sparsity/predictor_selector.h"

namespace hearth {
namespace {

// Scores of a text that are in memory at a time, with which its default length is chosen: half a
// gigabyte for gate, up and mass each at most.
constexpr int64_t kMaxScores = int64_t{1} << 26;
constexpr int64_t kMaxDefaultTokens = 16384;
// Fewer tell nothing about thresholds.
constexpr int64_t kFewestTokens = 256;
// Of the text, where both inputs are tried.
constexpr int64_t kInputTokens = 1280;
// Of activation mass. What is aimed at (PredictorOptions::recall) lies above it.
constexpr double kPromisedRecall = 0.99;
// Of all work, for progress: reading the text, and the trial at the end.
constexpr double kReadShare = 0.1;
constexpr double kTrialShare = 0.05;

void CheckModel(const Engine& engine, const PredictorOptions& options) {
  const Model& model = engine.model();
  for (size_t l = 0; l < model.spec().layers.size(); ++l) {
    if (model.weights().layers[l].has_rows()) {
      throw Error(ErrorCode::kUnsupported, model.path(),
                  "predictors are made from the model that a packed file came from");
    }
    if (!CanSkipNeurons(model.spec().layers[l].ffn.activation)) {
      throw Error(ErrorCode::kUnsupported, model.path(),
                  "no neuron of this model is ever silent: there is nothing to predict");
    }
  }
  const int64_t hidden = model.spec().hidden_size;
  if (!kernels::CanQuantize(options.dtype) ||
      hidden % static_cast<int64_t>(InfoOf(options.dtype).block_size) != 0) {
    throw Error(ErrorCode::kUnsupported, model.path(),
                fmt::format("predictors of a hidden size of {} cannot be stored as {}", hidden,
                            NameOf(options.dtype)));
  }
  if (!(options.recall > 0 && options.recall < 1) ||
      !(options.held_out_share > 0 && options.held_out_share < 1)) {
    throw Error(ErrorCode::kInvalidArgument, "predictors",
                "recall and the held-out share lie between 0 and 1");
  }
}

// Everything that the result depends on.
uint64_t FingerprintOf(const Engine& engine, std::span<const TokenId> tokens,
                       const PredictorOptions& options) {
  const Model& model = engine.model();
  ChecksumStream print;
  const ModelSpec& spec = model.spec();
  print.Update(std::as_bytes(std::span<const char>(spec.name.data(), spec.name.size())));
  const int64_t sizes[] = {spec.hidden_size, spec.num_layers, spec.vocab_size, ExpertsOf(spec),
                           MainFfn(spec).intermediate_size};
  print.Update(std::as_bytes(std::span(sizes)));
  const uint64_t weights = ModelHash(model.Reopen());
  print.Update(std::as_bytes(std::span(&weights, 1)));
  print.Update(std::as_bytes(tokens));
  const double numbers[] = {options.recall,
                            options.max_listed_ratio,
                            options.max_bytes_share,
                            options.held_out_share,
                            static_cast<double>(options.method),
                            static_cast<double>(options.dtype),
                            static_cast<double>(options.model_bytes),
                            static_cast<double>(options.max_layers),
                            options.input ? static_cast<double>(*options.input) : -1.0,
                            static_cast<double>(engine.context())};
  print.Update(std::as_bytes(std::span(numbers)));
  return print.Digest();
}

// One run, from text to thresholds.
class PredictorRun {
 public:
  PredictorRun(Engine& engine, std::vector<TokenId> tokens, const PredictorOptions& options,
               const PredictorProgressFn& progress)
      : engine_(engine),
        options_(options),
        progress_(progress),
        tokens_(std::move(tokens)),
        state_(options.state_dir, FingerprintOf(engine, tokens_, options)),
        task_{engine, options_} {
    const ModelSpec& spec = engine.model().spec();
    num_layers_ =
        options.max_layers > 0 ? std::min(options.max_layers, spec.num_layers) : spec.num_layers;
    const auto count = static_cast<double>(tokens_.size());
    task_.held_from = static_cast<int64_t>(count * (1 - options.held_out_share));
    model_bytes_ = options.model_bytes > 0 ? options.model_bytes
                                           : PlanLoad(engine.model().Reopen()).weights_bytes;
    bytes_left_ =
        static_cast<uint64_t>(options.max_bytes_share * static_cast<double>(model_bytes_));
    // A part of the layers gets its part of the bytes.
    bytes_left_ =
        bytes_left_ * static_cast<uint64_t>(num_layers_) / static_cast<uint64_t>(spec.num_layers);
    FindMaxRank();
  }

  MadePredictors Run() {
    DecideInput();
    for (int64_t first = 0; first < num_layers_;) first = MakeLayers(first);
    return Finish();
  }

 private:
  void Report(const std::string& what, double done) const;
  void FindMaxRank();
  void DecideInput();
  int64_t MakeLayers(int64_t first);
  void Take(LayerPredictors made);
  uint64_t BytesForNextLayer() const;
  MadePredictors Finish();
  void SetThresholds(size_t step);
  PredictionQuality Try(size_t step);
  double MacsShare() const;

  int64_t hidden() const { return engine_.model().spec().hidden_size; }
  int64_t neurons() const { return MainFfn(engine_.model().spec()).intermediate_size; }

  Engine& engine_;
  const PredictorOptions& options_;
  const PredictorProgressFn& progress_;
  std::vector<TokenId> tokens_;
  PredictorState state_;
  LayerTask task_;
  int64_t num_layers_ = 0;
  uint64_t model_bytes_ = 0;
  uint64_t bytes_left_ = 0;  // for layers not made yet
  PredictorSet set_;
  std::vector<LayerPredictors> layers_;  // without their weights, which are in set_
  std::vector<BudgetCharge> charges_;    // for the weights
  double layers_done_ = 0;               // in this run, for the time left
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

void PredictorRun::Report(const std::string& what, double done) const {
  if (!progress_) return;
  PredictorProgress progress{what, std::min(done, 1.0), std::nullopt};
  if (layers_done_ >= 1) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started_;
    const double left = static_cast<double>(num_layers_) - static_cast<double>(layers_.size());
    progress.eta_seconds = spent.count() / layers_done_ * left;
  }
  progress_(progress);
}

uint64_t PredictorRun::BytesForNextLayer() const {
  const auto left = static_cast<uint64_t>(num_layers_) - layers_.size();
  return bytes_left_ / left / static_cast<uint64_t>(ExpertsOf(engine_.model().spec()));
}

// The largest that there is memory for, beside samples and finished predictors.
void PredictorRun::FindMaxRank() {
  const Budget& budget = engine_.budget();
  const Model& model = engine_.model();
  const uint64_t copies =
      engine_.is_streamed() ? PredictorMemory::CopiedBytes(model.weights().main_layer()) : 0;
  const PredictorMemory memory(model.spec(), options_, model_bytes_, copies, std::ssize(tokens_));
  const uint64_t taken = budget.used_bytes() + memory.SampleBytes(options_.sample_bytes);
  const uint64_t left = budget.limit_bytes() > taken ? budget.limit_bytes() - taken : 0;
  task_.max_rank = memory.RankWithin(left);
  if (task_.max_rank > 0) return;
  const uint64_t least = taken + memory.WorkBytes(kRankUnit) + memory.KeptBytes(kRankUnit);
  throw Error(ErrorCode::kOutOfBudget, "predictors", "memory to make them in",
              "at least " + FormatSize(least), FormatSize(budget.limit_bytes()));
}

// Both inputs are tried on the middle layer, over part of the text.
void PredictorRun::DecideInput() {
  if (options_.input) {
    task_.input = *options_.input;
    return;
  }
  const int64_t count = std::min(static_cast<int64_t>(tokens_.size()), kInputTokens);
  const int64_t layer = num_layers_ / 2;
  std::vector<LayerSamples> samples;
  samples.emplace_back(engine_.budget(), count, hidden(), ExpertsOf(engine_.model().spec()), true);
  CollectSamples(engine_, std::span<const TokenId>(tokens_).first(static_cast<size_t>(count)),
                 layer, samples,
                 [&](int64_t, int64_t) { Report("reading the text for the input", 0); });
  LayerTask task = task_;
  task.held_from = static_cast<int64_t>(static_cast<double>(count) * (1 - options_.held_out_share));
  task_.input = ChooseInput(task, samples.front(), layer, BytesForNextLayer());
}

// Makes layers from `first` on, as many as samples are kept of at a time; returns the next.
int64_t PredictorRun::MakeLayers(int64_t first) {
  if (auto kept = state_.Load(first)) {
    Take(std::move(*kept));
    return first + 1;
  }
  const bool keeps_residual = task_.input == PredictorInput::kResidual;
  const auto count = static_cast<int64_t>(tokens_.size());
  const uint64_t layer_bytes = LayerSamples::ChargedBytes(count, hidden(), keeps_residual);
  const auto room =
      static_cast<int64_t>(std::max<uint64_t>(options_.sample_bytes / layer_bytes, 1));
  int64_t end = std::min(first + room, num_layers_);
  for (int64_t l = first + 1; l < end; ++l) {
    if (state_.Has(l)) end = l;
  }
  std::vector<LayerSamples> samples;
  for (int64_t l = first; l < end; ++l) {
    samples.emplace_back(engine_.budget(), count, hidden(), ExpertsOf(engine_.model().spec()),
                         keeps_residual);
  }
  // Of all work, when so many layers of these are done.
  const auto done_at = [&](double read, double layers) {
    const auto count_here = static_cast<double>(end - first);
    const double here = kReadShare * count_here * read + (1 - kReadShare) * layers;
    return (1 - kTrialShare) * (static_cast<double>(first) + here) /
           static_cast<double>(num_layers_);
  };
  const std::string reading = fmt::format("reading the text for layers {} to {}", first, end - 1);
  CollectSamples(engine_, tokens_, first, samples, [&](int64_t done, int64_t total) {
    Report(reading, done_at(static_cast<double>(done) / static_cast<double>(total), 0));
  });
  for (int64_t l = first; l < end; ++l) {
    const LayerProgressFn report = [&](const std::string& what, double done) {
      Report(what, done_at(1, static_cast<double>(l - first) + done));
    };
    LayerPredictors made = MakeLayerPredictors(task_, samples[static_cast<size_t>(l - first)], l,
                                               BytesForNextLayer(), report);
    state_.Save(l, made);
    Take(std::move(made));
    ++layers_done_;
  }
  return end;
}

void PredictorRun::Take(LayerPredictors made) {
  for (JudgedPredictor& expert : made.experts) {
    const int64_t rank = expert.made.rank;
    if (rank % kRankUnit != 0 || std::ssize(expert.made.down) != rank * hidden() ||
        std::ssize(expert.made.up) != rank * neurons()) {
      throw Error(ErrorCode::kCorrupt, options_.state_dir,
                  "a finished layer has another shape; remove this folder to begin anew");
    }
    const uint64_t bytes = PredictorBytes(options_.dtype, rank, hidden(), neurons());
    bytes_left_ -= std::min(bytes, bytes_left_);
    charges_.push_back(engine_.budget().Charge("made predictors", bytes));
    set_.ffns.push_back(QuantizePredictor(expert.made, options_.dtype));
    expert.made = {};
    expert.made.rank = rank;
  }
  layers_.push_back(std::move(made));
}

void PredictorRun::SetThresholds(size_t step) {
  size_t next = 0;
  for (const LayerPredictors& layer : layers_) {
    for (const JudgedPredictor& expert : layer.experts) {
      if (expert.made.rank > 0) set_.ffns[next].threshold = expert.thresholds[step];
      ++next;
    }
  }
}

PredictionQuality PredictorRun::Try(size_t step) {
  const auto text = std::span<const TokenId>(tokens_).subspan(static_cast<size_t>(task_.held_from));
  const std::string what =
      fmt::format("trying recall {:.2f}%", 100 * RecallSteps(options_.recall)[step]);
  return TryPredictors(engine_, set_, text, [&](uint64_t done, uint64_t total) {
    const double part = static_cast<double>(done) / static_cast<double>(total);
    Report(what, 1 - kTrialShare * (1 - part));
  });
}

// Multiply-adds of the predictors of a token over those of the dense model.
double PredictorRun::MacsShare() const {
  const ModelSpec& spec = engine_.model().spec();
  const FfnSpec& ffn = MainFfn(spec);
  const int64_t per_token = ffn.num_experts > 0 ? ffn.num_experts_per_token : 1;
  double predictors = 0, dense = static_cast<double>(spec.vocab_size * spec.hidden_size);
  for (const LayerPredictors& layer : layers_) {
    predictors += static_cast<double>(layer.experts.front().made.rank * (hidden() + neurons())) *
                  static_cast<double>(per_token);
  }
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& a = layer.attention;
    dense += static_cast<double>(hidden() * a.head_dim * 2 * (a.num_heads + a.num_kv_heads));
    dense += static_cast<double>(3 * per_token * hidden() * neurons());
  }
  return predictors / dense;
}

MadePredictors PredictorRun::Finish() {
  const ModelSpec& spec = engine_.model().spec();
  set_.input = task_.input;
  set_.dtype = options_.dtype;
  set_.ffns.resize(static_cast<size_t>(spec.num_layers * ExpertsOf(spec)));
  MadePredictors out;
  const std::vector<double> recalls = RecallSteps(options_.recall);
  size_t step = 0;
  for (;; ++step) {
    SetThresholds(step);
    out.quality = Try(step);
    const double change = std::abs(out.quality.perplexity_ratio() - 1);
    if (change <= options_.max_perplexity_change || step + 1 == recalls.size()) break;
  }
  out.recall = recalls[step];
  for (size_t l = 0; l < layers_.size(); ++l) {
    for (size_t e = 0; e < layers_[l].experts.size(); ++e) {
      const JudgedPredictor& judged = layers_[l].experts[e];
      PredictorReport report;
      report.layer = static_cast<int64_t>(l);
      report.expert = static_cast<int64_t>(e);
      report.rank = judged.made.rank;
      report.trained = judged.trained;
      if (report.rank > 0) report.figures = judged.figures[step];
      report.bytes = PredictorBytes(options_.dtype, report.rank, hidden(), neurons());
      report.seconds = e == 0 ? layers_[l].seconds : 0;
      out.bytes += report.bytes;
      out.reports.push_back(report);
    }
  }
  out.bytes_share = static_cast<double>(out.bytes) / static_cast<double>(model_bytes_);
  out.macs_share = MacsShare();
  out.set = std::move(set_);
  Report("done", 1);
  return out;
}

// The part of the text that predictors are made from.
std::vector<TokenId> ChooseSample(const Engine& engine, std::span<const TokenId> tokens,
                                  const PredictorOptions& options) {
  CheckModel(engine, options);
  if (static_cast<int64_t>(tokens.size()) < kFewestTokens) {
    throw Error(ErrorCode::kInvalidArgument, Field{"text"}, "tokens to make predictors from",
                fmt::format("at least {}", kFewestTokens), std::to_string(tokens.size()));
  }
  const int64_t count = options.max_tokens > 0 ? std::max(options.max_tokens, kFewestTokens)
                                               : DefaultPredictorTokens(engine.model().spec());
  return SpreadSample(tokens, count, engine.context());
}

}  // namespace

int64_t DefaultPredictorTokens(const ModelSpec& spec) {
  return std::clamp(kMaxScores / MainFfn(spec).intermediate_size, kFewPredictorTokens,
                    kMaxDefaultTokens);
}

PredictionQuality TryPredictors(Engine& engine, const PredictorSet& set,
                                std::span<const TokenId> tokens,
                                const QualityProgressFn& progress) {
  const HeldPredictors held(set, engine.model().spec(), engine.budget());
  PredictorSelector selector(engine.model().spec(), held.predictors(), engine.compute(),
                             engine.budget(), engine.pass().limits().max_tokens);
  return MeasurePrediction(engine, tokens, selector, progress);
}

bool MeetTargets(const PredictionQuality& quality, const PredictorOptions& options) {
  return quality.Total().recall() >= kPromisedRecall &&
         std::abs(quality.perplexity_ratio() - 1) <= options.max_perplexity_change;
}

void CheckPredictorState(const Engine& engine, std::span<const TokenId> tokens,
                         const PredictorOptions& options) {
  const uint64_t print = FingerprintOf(engine, ChooseSample(engine, tokens, options), options);
  PredictorState(options.state_dir, print).Check(engine.model().spec().num_layers);
}

MadePredictors MakePredictors(Engine& engine, std::span<const TokenId> tokens,
                              const PredictorOptions& options,
                              const PredictorProgressFn& progress) {
  PredictorRun run(engine, ChooseSample(engine, tokens, options), options, progress);
  return run.Run();
}

}  // namespace hearth
