#include "prepare/predict/layer_predictors.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/stopwatch.h"
#include "prepare/predict/predictor_memory.h"
#include "prepare/predict/trained.h"
#include "prepare/predict/training_free.h"

namespace hearth {
namespace {

constexpr double kLossShares[] = {1, 0.5, 0.25, 0.1};
// The step of kLossShares at which max_listed_ratio holds.
constexpr size_t kRatioStep = 1;
// The rank to begin with, in units of the hidden size, for each share of active neurons: P1 Figure
// 9 has sizes grow with density.
constexpr double kStartPerActive = 2;
constexpr double kGrow = 1.5;
constexpr double kShrink = 0.75;
// A predictor that lists more than this share of all neurons saves less than it costs.
constexpr double kUselessShare = 0.8;
// Attempts at training a layer, of which each may take minutes.
constexpr int kMaxTrainings = 2;

int64_t RoundRank(double rank, int64_t largest) {
  const auto units = static_cast<int64_t>(rank / static_cast<double>(kRankUnit) + 0.5);
  return std::clamp(units * kRankUnit, kRankUnit, largest);
}

int64_t NeuronsOf(const Engine& engine, int64_t layer) {
  return engine.model().spec().layers[static_cast<size_t>(layer)].ffn.intermediate_size;
}

// Everything about one FFN while its predictor is being made.
class FfnWork {
 public:
  FfnWork(const LayerTask& task, const LayerSamples& samples, int64_t layer, int64_t expert,
          int64_t max_rank)
      : task_(task),
        made_(task.engine.budget().Charge(
            "predictor maker",
            MadePredictorBytes(max_rank, samples.hidden(), NeuronsOf(task.engine, layer)))),
        matrices_(task.engine, layer, expert),
        data_(ComputeFfnData(task.engine, matrices_, samples, task.input, task.held_from)),
        free_(task.engine, matrices_, data_, layer, task.input, max_rank) {}

  int64_t max_rank() const { return free_.max_rank(); }
  double active_share() const { return Judge(data_.held_mass, data_.held_mass, 0).active; }

  JudgedPredictor Free(int64_t rank) {
    return JudgeAll(free_.Make(rank, task_.options.dtype, task_.options.recall));
  }

  JudgedPredictor Trained(const MadePredictor& start, const TrainingProgressFn& progress) {
    TrainingOptions options;
    options.dtype = task_.options.dtype;
    options.recall = RecallSteps(task_.options.recall)[kRatioStep];
    JudgedPredictor judged =
        JudgeAll(TrainPredictor(task_.engine, data_, start, options, progress));
    judged.trained = true;
    return judged;
  }

  bool IsGoodEnough(const JudgedPredictor& judged) const {
    return judged.figures[kRatioStep].listed_ratio() <= task_.options.max_listed_ratio;
  }

 private:
  JudgedPredictor JudgeAll(MadePredictor made) const {
    JudgedPredictor judged;
    FloatMatrix scores(task_.engine.budget(), data_.held_inputs.rows(), data_.neurons());
    StoredPredictor(task_.engine, made, data_.hidden(), task_.options.dtype)
        .Score(data_.held_inputs, scores);
    AddBias(task_.engine.compute(), made.bias, scores);
    for (const double recall : RecallSteps(task_.options.recall)) {
      const float threshold = ThresholdFor(scores, data_.held_mass, recall);
      judged.thresholds.push_back(threshold);
      judged.figures.push_back(Judge(scores, data_.held_mass, threshold));
    }
    made.threshold = judged.thresholds.front();
    judged.made = std::move(made);
    return judged;
  }

  const LayerTask& task_;
  const BudgetCharge made_;  // for float32 weights
  const FfnMatrices matrices_;
  FfnData data_;
  TrainingFreeMaker free_;
};

// The training-free predictor of the smallest rank that is good enough, or of the largest.
JudgedPredictor FindFree(FfnWork& work, const std::function<void(int64_t)>& report) {
  const int64_t largest = work.max_rank();
  const auto make = [&](int64_t rank) {
    report(rank);
    return work.Free(rank);
  };
  const double start = kStartPerActive * work.active_share() * static_cast<double>(largest);
  int64_t rank = RoundRank(start, largest);
  JudgedPredictor best = make(rank);
  if (!work.IsGoodEnough(best)) {
    while (rank < largest && !work.IsGoodEnough(best)) {
      const double more =
          std::max(kGrow * static_cast<double>(rank), static_cast<double>(rank + kRankUnit));
      rank = RoundRank(more, largest);
      best = make(rank);
    }
    return best;
  }
  while (rank > kRankUnit) {
    rank = std::min(RoundRank(kShrink * static_cast<double>(rank), largest), rank - kRankUnit);
    JudgedPredictor smaller = make(rank);
    if (!work.IsGoodEnough(smaller)) break;
    best = std::move(smaller);
  }
  return best;
}

// Trains from `start`, and at smaller ranks while that is good enough.
JudgedPredictor FindTrained(FfnWork& work, MadePredictor start,
                            const std::function<void(int64_t, double)>& report) {
  JudgedPredictor best;
  for (int attempt = 0; attempt < kMaxTrainings; ++attempt) {
    const int64_t rank = start.rank;
    JudgedPredictor trained =
        work.Trained(start, [&](double done) { report(rank, (attempt + done) / kMaxTrainings); });
    const bool good = work.IsGoodEnough(trained);
    if (attempt == 0 || good) best = std::move(trained);
    const int64_t smaller = RoundRank(kShrink * static_cast<double>(rank), rank);
    if (!good || smaller == rank || attempt + 1 == kMaxTrainings) break;
    start = work.Free(smaller).made;
  }
  return best;
}

// The expert that most tokens chose: it says what rank its layer needs.
int64_t BusiestExpert(const LayerSamples& samples, int64_t experts) {
  int64_t busiest = 0;
  for (int64_t e = 1; e < experts; ++e) {
    if (samples.TokensOf(e).size() > samples.TokensOf(busiest).size()) busiest = e;
  }
  return busiest;
}

using RankReportFn = std::function<void(const char* what, int64_t rank, double done)>;

// The predictor that decides the rank of its layer, and whether it is trained.
JudgedPredictor MakeFirst(const LayerTask& task, const LayerSamples& samples, int64_t layer,
                          int64_t expert, int64_t largest, const RankReportFn& report) {
  FfnWork work(task, samples, layer, expert, largest);
  JudgedPredictor found = FindFree(work, [&](int64_t r) { report("trying", r, 0.1); });
  const PredictorMethod method = task.options.method;
  const bool train = method == PredictorMethod::kTrained ||
                     (method == PredictorMethod::kBest && !work.IsGoodEnough(found));
  if (!train) return found;
  return FindTrained(work, std::move(found.made),
                     [&](int64_t r, double done) { report("training", r, 0.2 + 0.8 * done); });
}

}  // namespace

std::vector<double> RecallSteps(double recall) {
  std::vector<double> steps;
  for (const double share : kLossShares) steps.push_back(1 - (1 - recall) * share);
  return steps;
}

uint64_t PredictorBytes(DType dtype, int64_t rank, int64_t hidden, int64_t neurons) {
  if (rank == 0) return 0;
  return static_cast<uint64_t>(rank) * RowBytes(dtype, static_cast<size_t>(hidden)) +
         static_cast<uint64_t>(neurons) *
             (RowBytes(dtype, static_cast<size_t>(rank)) + sizeof(float));
}

int64_t LargestRank(DType dtype, uint64_t bytes, int64_t hidden, int64_t neurons) {
  int64_t rank = 0;
  while (rank + kRankUnit <= hidden &&
         PredictorBytes(dtype, rank + kRankUnit, hidden, neurons) <= bytes) {
    rank += kRankUnit;
  }
  return rank;
}

LayerPredictors MakeLayerPredictors(const LayerTask& task, const LayerSamples& samples,
                                    int64_t layer, uint64_t bytes,
                                    const LayerProgressFn& progress) {
  const Stopwatch watch;
  const FfnSpec& ffn = task.engine.model().spec().layers[static_cast<size_t>(layer)].ffn;
  const int64_t experts = std::max<int64_t>(ffn.num_experts, 1);
  LayerPredictors out;
  out.experts.resize(static_cast<size_t>(experts));
  const int64_t largest =
      std::min(LargestRank(task.options.dtype, bytes, samples.hidden(), ffn.intermediate_size),
               task.max_rank);
  if (largest == 0) return out;
  const int64_t busiest = BusiestExpert(samples, experts);
  int64_t done_experts = 0;
  const auto report = [&](const char* what, int64_t rank, double done) {
    if (!progress) return;
    progress(fmt::format("layer {}: {} rank {}", layer, what, rank),
             (static_cast<double>(done_experts) + done) / static_cast<double>(experts));
  };
  JudgedPredictor& first = out.experts[static_cast<size_t>(busiest)];
  first = MakeFirst(task, samples, layer, busiest, largest, report);
  if (first.figures.front().listed > kUselessShare) {
    first = {};
    return out;
  }
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (expert == busiest) continue;
    ++done_experts;
    FfnWork work(task, samples, layer, expert, largest);
    JudgedPredictor& found = out.experts[static_cast<size_t>(expert)];
    report("making", first.made.rank, 0);
    found = work.Free(first.made.rank);
    if (!first.trained) continue;
    found =
        work.Trained(found.made, [&](double done) { report("training", first.made.rank, done); });
  }
  out.seconds = watch.Seconds();
  return out;
}

PredictorInput ChooseInput(const LayerTask& task, const LayerSamples& samples, int64_t layer,
                           uint64_t bytes) {
  const FfnSpec& ffn = task.engine.model().spec().layers[static_cast<size_t>(layer)].ffn;
  const int64_t rank =
      std::min(LargestRank(task.options.dtype, bytes, samples.hidden(), ffn.intermediate_size),
               task.max_rank);
  if (rank == 0) return PredictorInput::kFfnInput;
  const int64_t expert = BusiestExpert(samples, std::max<int64_t>(ffn.num_experts, 1));
  double listed[2];
  constexpr PredictorInput kInputs[] = {PredictorInput::kFfnInput, PredictorInput::kResidual};
  for (size_t i = 0; i < 2; ++i) {
    LayerTask with_input = task;
    with_input.input = kInputs[i];
    FfnWork work(with_input, samples, layer, expert, rank);
    listed[i] = work.Free(work.max_rank()).figures[kRatioStep].listed;
  }
  return listed[1] < listed[0] ? kInputs[1] : kInputs[0];
}

}  // namespace hearth
