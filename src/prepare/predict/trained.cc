#include "prepare/predict/trained.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "prepare/predict/float_matrix.h"
#include "prepare/predict/predictor_trial.h"

namespace hearth {
namespace {

// Epochs without a better result after which training ends.
constexpr int kPatience = 3;
// Step of a weight in units of the root mean square of its matrix, at the start; it falls to zero
// over the epochs along a cosine. Measured on the embedded model.
constexpr double kStep = 0.005;
// The start's scores are scaled to this spread around its threshold, so that the logistic function
// is neither flat nor a step.
constexpr double kStartSpread = 3;
// Loss weights: an active neuron, floor + mass / mean mass (at most the cap); a silent one.
constexpr float kActiveFloor = 0.3f;
constexpr float kActiveCap = 8;
constexpr float kSilent = 0.3f;

// Adam (Kingma and Ba 2015) for one array of weights.
class Adam {
 public:
  Adam(Budget& budget, std::span<float> weights)
      : weights_(weights),
        first_(budget, 1, static_cast<int64_t>(weights.size())),
        second_(budget, 1, static_cast<int64_t>(weights.size())) {
    double squares = 0;
    for (const float w : weights) squares += static_cast<double>(w) * static_cast<double>(w);
    size_ = std::sqrt(squares / static_cast<double>(std::max<size_t>(weights.size(), 1)));
  }

  // `step` in units of the array's size; `number` counts from 1.
  void Step(WorkerTeam& team, std::span<const float> gradient, double step, int64_t number) {
    constexpr float kBeta1 = 0.9f, kBeta2 = 0.99f, kEpsilon = 1e-8f;
    const double correct1 = 1 - std::pow(static_cast<double>(kBeta1), static_cast<double>(number));
    const double correct2 = 1 - std::pow(static_cast<double>(kBeta2), static_cast<double>(number));
    const auto rate = static_cast<float>(step * size_ / correct1);
    const auto root = static_cast<float>(1 / std::sqrt(correct2));
    float* m = first_.row(0);
    float* v = second_.row(0);
    const auto count = static_cast<int64_t>(weights_.size());
    team.ParallelFor(count, 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const float g = gradient[static_cast<size_t>(i)];
        m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
        v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
        weights_[static_cast<size_t>(i)] -= rate * m[i] / (std::sqrt(v[i]) * root + kEpsilon);
      }
    });
  }

  void set_size(double size) { size_ = size; }

 private:
  std::span<float> weights_;
  FloatMatrix first_, second_;
  double size_ = 0;
};

bool IsIdentity(const MadePredictor& made, int64_t hidden) {
  if (made.rank != hidden) return false;
  for (int64_t r = 0; r < hidden; ++r) {
    for (int64_t c = 0; c < hidden; ++c) {
      if (made.down[static_cast<size_t>(r * hidden + c)] != (r == c ? 1.0f : 0.0f)) return false;
    }
  }
  return true;
}

FloatMatrix MatrixOf(Budget& budget, const std::vector<float>& values, int64_t rows, int64_t cols) {
  FloatMatrix out(budget, rows, cols);
  std::copy(values.begin(), values.end(), out.values().begin());
  return out;
}

// The weights being trained and what one step needs.
class Trainer {
 public:
  Trainer(Engine& engine, const FfnData& data, const MadePredictor& start, DType dtype)
      : engine_(engine),
        data_(data),
        dtype_(dtype),
        trains_down_(!IsIdentity(start, data.hidden())),
        down_(MatrixOf(engine.budget(), start.down, start.rank, data.hidden())),
        up_(MatrixOf(engine.budget(), start.up, data.neurons(), start.rank)),
        bias_(MatrixOf(engine.budget(), start.bias, 1, data.neurons())),
        stored_down_(engine.budget(), start.rank, data.hidden()),
        stored_up_(engine.budget(), data.neurons(), start.rank),
        mean_mass_(static_cast<float>(MeanActiveMass(data.fit_mass).value_or(1))),
        down_adam_(engine.budget(), trains_down_ ? down_.values() : std::span<float>()),
        up_adam_(engine.budget(), up_.values()),
        bias_adam_(engine.budget(), bias_.values()) {
    ScaleStart();
    // A bias moves like a score, whatever it is at the start.
    bias_adam_.set_size(1);
  }

  // One step on these tokens; the batch-th of all.
  void Step(std::span<const int64_t> tokens, double step, int64_t number);

  MadePredictor Result() const {
    MadePredictor made;
    made.rank = down_.rows();
    made.down.assign(down_.values().begin(), down_.values().end());
    made.up.assign(up_.values().begin(), up_.values().end());
    made.bias.assign(bias_.values().begin(), bias_.values().end());
    return made;
  }

 private:
  void ScaleStart();
  void LossGradient(std::span<const int64_t> tokens, FloatMatrix& scores);
  void StepDown(const FloatMatrix& x, const FloatMatrix& gradient, double step, int64_t number);

  Compute& compute() { return engine_.compute(); }
  Budget& budget() { return engine_.budget(); }

  Engine& engine_;
  const FfnData& data_;
  DType dtype_;
  bool trains_down_;
  FloatMatrix down_, up_, bias_;
  FloatMatrix stored_down_, stored_up_;  // the values they would have when stored
  float mean_mass_;
  Adam down_adam_, up_adam_, bias_adam_;
};

// Multiplies up and bias so that the scores of the held-out tokens spread as they should.
void Trainer::ScaleStart() {
  FloatMatrix inner(budget(), data_.held_inputs.rows(), down_.rows());
  FloatMatrix scores(budget(), data_.held_inputs.rows(), data_.neurons());
  MultiplyTransposed(compute(), budget(), data_.held_inputs.view(), down_.view(), inner.view());
  MultiplyTransposed(compute(), budget(), inner.view(), up_.view(), scores.view());
  AddBias(compute(), bias_.values(), scores);
  double sum = 0, squares = 0;
  for (const float s : scores.values()) {
    sum += static_cast<double>(s);
    squares += static_cast<double>(s) * static_cast<double>(s);
  }
  const auto count = static_cast<double>(std::max<size_t>(scores.values().size(), 1));
  const double spread = std::sqrt(std::max(squares / count - sum / count * (sum / count), 1e-30));
  // Half of the factor to each side of the product, so that both move alike.
  const auto factor = static_cast<float>(kStartSpread / spread);
  const float down_factor = trains_down_ ? std::sqrt(factor) : 1;
  for (float& w : down_.values()) w *= down_factor;
  for (float& w : up_.values()) w *= factor / down_factor;
  for (float& b : bias_.values()) b *= factor;
  down_adam_ = Adam(budget(), trains_down_ ? down_.values() : std::span<float>());
  up_adam_ = Adam(budget(), up_.values());
}

// Turns scores into the loss's derivative by them, averaged over the batch.
void Trainer::LossGradient(std::span<const int64_t> tokens, FloatMatrix& scores) {
  const float per_token = 1 / static_cast<float>(tokens.size());
  const float per_mass = 1 / mean_mass_;
  compute().team().ParallelFor(scores.rows(), 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* z = scores.row(t);
      const float* mass = data_.fit_mass.row(tokens[static_cast<size_t>(t)]);
      for (int64_t n = 0; n < scores.cols(); ++n) {
        const float p = 1 / (1 + std::exp(-(z[n] + bias_.row(0)[n])));
        z[n] = mass[n] > 0 ? (p - 1) * std::min(kActiveFloor + mass[n] * per_mass, kActiveCap)
                           : p * kSilent;
        z[n] *= per_token;
      }
    }
  });
}

void Trainer::Step(std::span<const int64_t> tokens, double step, int64_t number) {
  const auto count = static_cast<int64_t>(tokens.size());
  FloatMatrix x(budget(), count, data_.hidden()), inner(budget(), count, down_.rows());
  for (int64_t t = 0; t < count; ++t) {
    const float* row = data_.fit_inputs.row(tokens[static_cast<size_t>(t)]);
    std::copy(row, row + data_.hidden(), x.row(t));
  }
  StoreAndRead(compute(), dtype_, down_.view(), stored_down_);
  StoreAndRead(compute(), dtype_, up_.view(), stored_up_);
  MultiplyTransposed(compute(), budget(), x.view(), stored_down_.view(), inner.view());
  FloatMatrix gradient(budget(), count, data_.neurons());
  MultiplyTransposed(compute(), budget(), inner.view(), stored_up_.view(), gradient.view());
  LossGradient(tokens, gradient);

  FloatMatrix gradient_columns(budget(), data_.neurons(), count);
  FloatMatrix inner_columns(budget(), down_.rows(), count);
  FloatMatrix up_gradient(budget(), data_.neurons(), down_.rows());
  Transpose(compute(), gradient.view(), gradient_columns.view());
  Transpose(compute(), inner.view(), inner_columns.view());
  MultiplyTransposed(compute(), budget(), gradient_columns.view(), inner_columns.view(),
                     up_gradient.view());
  if (trains_down_) StepDown(x, gradient, step, number);
  up_adam_.Step(compute().team(), up_gradient.values(), step, number);
  std::vector<float> bias_gradient(static_cast<size_t>(data_.neurons()));
  for (size_t n = 0; n < bias_gradient.size(); ++n) {
    const float* row = gradient_columns.row(static_cast<int64_t>(n));
    bias_gradient[n] = std::accumulate(row, row + count, 0.0f);
  }
  bias_adam_.Step(compute().team(), bias_gradient, step, number);
}

// Before up moves: the gradient passes through up as it was.
void Trainer::StepDown(const FloatMatrix& x, const FloatMatrix& gradient, double step,
                       int64_t number) {
  FloatMatrix up_columns(budget(), up_.cols(), up_.rows());
  Transpose(compute(), stored_up_.view(), up_columns.view());
  FloatMatrix inner_gradient(budget(), x.rows(), down_.rows());
  MultiplyTransposed(compute(), budget(), gradient.view(), up_columns.view(),
                     inner_gradient.view());
  FloatMatrix inner_columns(budget(), down_.rows(), x.rows());
  FloatMatrix x_columns(budget(), x.cols(), x.rows());
  Transpose(compute(), inner_gradient.view(), inner_columns.view());
  Transpose(compute(), x.view(), x_columns.view());
  FloatMatrix down_gradient(budget(), down_.rows(), down_.cols());
  MultiplyTransposed(compute(), budget(), inner_columns.view(), x_columns.view(),
                     down_gradient.view());
  down_adam_.Step(compute().team(), down_gradient.values(), step, number);
}

// Share of neurons that must be listed for the wanted recall, as stored.
double ListedAt(Engine& engine, const FfnData& data, const MadePredictor& made,
                const TrainingOptions& options) {
  FloatMatrix scores(engine.budget(), data.held_inputs.rows(), data.neurons());
  StoredPredictor(engine, made, data.hidden(), options.dtype).Score(data.held_inputs, scores);
  AddBias(engine.compute(), made.bias, scores);
  return Judge(scores, data.held_mass, ThresholdFor(scores, data.held_mass, options.recall)).listed;
}

}  // namespace

MadePredictor TrainPredictor(Engine& engine, const FfnData& data, const MadePredictor& start,
                             const TrainingOptions& options, const TrainingProgressFn& progress) {
  Trainer trainer(engine, data, start, options.dtype);
  MadePredictor best = start;
  double best_listed = ListedAt(engine, data, start, options);
  std::vector<int64_t> order(static_cast<size_t>(data.fit_inputs.rows()));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(options.seed);
  const auto batches = static_cast<int64_t>((order.size() + kTrainingBatchTokens - 1) /
                                            static_cast<size_t>(kTrainingBatchTokens));
  const int64_t steps = batches * options.max_epochs;
  int worse = 0;
  int64_t number = 0;
  for (int epoch = 0; epoch < options.max_epochs && worse < kPatience; ++epoch) {
    // std::shuffle differs between libraries.
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    for (int64_t b = 0; b < batches; ++b) {
      const auto begin = static_cast<size_t>(b * kTrainingBatchTokens);
      const size_t count =
          std::min(static_cast<size_t>(kTrainingBatchTokens), order.size() - begin);
      const double done = static_cast<double>(number) / static_cast<double>(steps);
      const double step = kStep * (1 + std::cos(std::numbers::pi * done)) / 2;
      trainer.Step(std::span<const int64_t>(order).subspan(begin, count), step, ++number);
      if (progress) progress(done);
    }
    const MadePredictor made = trainer.Result();
    const double listed = ListedAt(engine, data, made, options);
    worse = listed < best_listed ? 0 : worse + 1;
    if (worse > 0) continue;
    best = made;
    best_listed = listed;
  }
  return best;
}

}  // namespace hearth
