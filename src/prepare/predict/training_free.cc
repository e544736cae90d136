#include "prepare/predict/training_free.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "ops/elementwise.h"
#include "pass/pass_context.h"
#include "prepare/predict/neuron_shifts.h"
#include "prepare/predict/predictor_trial.h"

namespace hearth {
namespace {

// Multiples of up that are tried, in units of the gate's spread over the up's.
constexpr double kUpShares[] = {0, 0.25, 0.5, 1};
constexpr double kChoiceRecall = 0.99;
// Active tokens below which a neuron takes what most others chose.
constexpr size_t kFewActive = 32;

double StandardDeviation(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float v : values) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  const auto count = static_cast<double>(std::max<size_t>(values.size(), 1));
  return std::sqrt(std::max(squares / count - sum / count * (sum / count), 0.0));
}

float MeanOf(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v);
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

// What a norm divides a residual by: its root mean square, of LayerNorm after its mean is taken
// off.
float SizeOf(std::span<const float> residual, NormKind norm) {
  const float mean = norm == NormKind::kLayer ? MeanOf(residual) : 0;
  double squares = 0;
  for (const float v : residual) {
    const auto x = static_cast<double>(v - mean);
    squares += x * x;
  }
  return static_cast<float>(std::sqrt(squares / static_cast<double>(residual.size())));
}

// What one neuron does over the tokens.
struct NeuronColumn {
  std::vector<float> gate, up, mass;
  size_t active = 0;

  NeuronColumn(const FfnData& data, int64_t n) {
    const auto tokens = static_cast<size_t>(data.fit_gate.rows());
    gate.resize(tokens);
    up.resize(tokens);
    mass.resize(tokens);
    for (size_t t = 0; t < tokens; ++t) {
      const auto row = static_cast<int64_t>(t);
      gate[t] = data.fit_gate.row(row)[n];
      up[t] = data.fit_up.row(row)[n];
      mass[t] = data.fit_mass.row(row)[n];
      active += mass[t] != 0 ? 1 : 0;
    }
  }

  // Tokens that must list the neuron, by gate + share * up, to find kChoiceRecall of its mass.
  size_t Candidates(double share) const {
    std::vector<std::pair<float, float>> scored;
    double total = 0;
    const auto score = [&](size_t t) { return gate[t] + static_cast<float>(share) * up[t]; };
    for (size_t t = 0; t < gate.size(); ++t) {
      if (mass[t] == 0) continue;
      scored.emplace_back(score(t), mass[t]);
      total += static_cast<double>(mass[t]);
    }
    std::sort(scored.begin(), scored.end(), std::greater<>());
    double found = 0;
    float threshold = 0;
    for (const auto& [s, m] : scored) {
      threshold = s;
      found += static_cast<double>(m);
      if (found >= kChoiceRecall * total) break;
    }
    size_t count = 0;
    for (size_t t = 0; t < gate.size(); ++t) count += score(t) >= threshold ? 1 : 0;
    return count;
  }
};

// Rows spread evenly over a matrix, at most `count` of them.
FloatMatrix SomeRows(Budget& budget, const FloatMatrix& from, int64_t count) {
  count = std::min(count, from.rows());
  FloatMatrix out(budget, count, from.cols());
  for (int64_t i = 0; i < count; ++i) {
    const float* row = from.row(i * from.rows() / count);
    std::copy(row, row + from.cols(), out.row(i));
  }
  return out;
}

}  // namespace

TrainingFreeMaker::TrainingFreeMaker(Engine& engine, const FfnMatrices& matrices, FfnData& data,
                                     int64_t layer, PredictorInput input, int64_t max_rank)
    : engine_(engine),
      matrices_(matrices),
      data_(data),
      layer_(layer),
      input_(input),
      max_rank_(max_rank),
      up_shares_(static_cast<size_t>(data.neurons())) {
  ChooseUpShares(data);
  const LayerSpec& spec = layer_spec();
  const auto hidden = static_cast<size_t>(data_.hidden());
  engine.compute().team().ParallelFor(
      data.fit_gate.rows(), 16, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          float* score = data_.fit_gate.row(t);
          for (int64_t n = 0; data_.fit_up.rows() > 0 && n < data_.neurons(); ++n) {
            score[n] += up_shares_[static_cast<size_t>(n)] * data_.fit_up.row(t)[n];
          }
          if (!is_normed()) continue;
          const float size = SizeOf({data_.fit_inputs.row(t), hidden}, spec.norm);
          for (int64_t n = 0; n < data_.neurons(); ++n) score[n] *= size;
        }
      });
  data_.fit_up = {};
  max_rank_ = std::min(max_rank_, data_.hidden());
  if (max_rank_ < data_.hidden()) max_rank_ = std::min(max_rank_, FactorRanks());
}

int64_t TrainingFreeMaker::FactorRanks() const {
  return std::min({data_.fit_gate.rows(), kMaxFactorTokens, data_.hidden() - 1}) / 32 * 32;
}

void TrainingFreeMaker::ChooseUpShares(const FfnData& data) {
  if (layer_spec().ffn.activation != FfnActivation::kDRelu || data.fit_up.rows() == 0) return;
  constexpr size_t kUnsure = std::size(kUpShares);
  const auto neurons = static_cast<size_t>(data.neurons());
  std::vector<size_t> choice(neurons, kUnsure);
  std::vector<double> spread(neurons);
  engine_.compute().team().ParallelFor(data.neurons(), 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      const NeuronColumn column(data, n);
      const double up_spread = StandardDeviation(column.up);
      const auto i = static_cast<size_t>(n);
      spread[i] = up_spread > 0 ? StandardDeviation(column.gate) / up_spread : 0;
      if (column.active < kFewActive) continue;
      choice[i] = 0;
      size_t best = column.Candidates(0);
      for (size_t c = 1; c < kUnsure; ++c) {
        const size_t candidates = column.Candidates(kUpShares[c] * spread[i]);
        if (candidates >= best) continue;
        best = candidates;
        choice[i] = c;
      }
    }
  });
  size_t votes[kUnsure + 1] = {};
  for (const size_t c : choice) ++votes[c];
  const auto common = static_cast<size_t>(std::max_element(votes, votes + kUnsure) - votes);
  for (size_t n = 0; n < neurons; ++n) {
    const size_t c = choice[n] == kUnsure ? common : choice[n];
    up_shares_[n] = static_cast<float>(kUpShares[c] * spread[n]);
  }
}

void TrainingFreeMaker::ReadRows(int64_t begin, int64_t end, FloatMatrix& out) const {
  const LayerWeights& w = engine_.model().weights().layers[static_cast<size_t>(layer_)];
  std::vector<int32_t> ids(static_cast<size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), static_cast<int32_t>(begin));
  const auto hidden = static_cast<size_t>(data_.hidden());
  LookUpRows(engine_.compute(), matrices_.gate(), ids, out.view().Rows(0, end - begin));
  if (!matrices_.up().empty()) {
    FloatMatrix up(engine_.budget(), end - begin, data_.hidden());
    LookUpRows(engine_.compute(), matrices_.up(), ids, up.view());
    for (int64_t r = 0; r < end - begin; ++r) {
      const float share = up_shares_[static_cast<size_t>(begin + r)];
      for (size_t c = 0; c < hidden; ++c) out.row(r)[c] += share * up.row(r)[c];
    }
  }
  if (!is_normed()) return;
  const float* const norm = FloatsOf(w.ffn_norm);
  for (int64_t r = 0; r < end - begin; ++r) {
    float* const row = out.row(r);
    for (size_t c = 0; c < hidden; ++c) row[c] *= norm[c];
    if (layer_spec().norm != NormKind::kLayer) continue;
    const float mean = MeanOf({row, hidden});
    for (size_t c = 0; c < hidden; ++c) row[c] -= mean;
  }
}

// The eigenvectors of Y Y^T [tokens][tokens] give the singular vectors on the other side.
void TrainingFreeMaker::Factorize() {
  Compute& compute = engine_.compute();
  Budget& budget = engine_.budget();
  const FloatMatrix y = SomeRows(budget, data_.fit_gate, kMaxFactorTokens);
  FloatMatrix gram(budget, y.rows(), y.rows());
  MultiplyTransposed(compute, budget, y.view(), y.view(), gram.view());
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXf> solver(
      Eigen::Map<const Eigen::MatrixXf>(gram.values().data(), y.rows(), y.rows()));
  if (solver.info() != Eigen::Success) {
    throw Error(ErrorCode::kInternal, "predictors", "the samples' scores could not be factorized");
  }
  const int64_t ranks = std::min(max_rank_, FactorRanks());
  FloatMatrix vectors(budget, ranks, y.rows());  // of Y^T, scaled to give unit rows of P^T
  root_sizes_.resize(static_cast<size_t>(ranks));
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t column = y.rows() - 1 - r;  // eigenvalues ascend
    const float size = std::sqrt(std::max(solver.eigenvalues()[column], 0.0f));
    root_sizes_[static_cast<size_t>(r)] = std::sqrt(size);
    for (int64_t t = 0; t < y.rows(); ++t) {
      vectors.row(r)[t] = size > 0 ? solver.eigenvectors()(t, column) / size : 0;
    }
  }
  left_ = FloatMatrix(budget, ranks, data_.neurons());
  right_ = FloatMatrix(budget, ranks, data_.hidden());
  for (int64_t n = 0; n < data_.neurons(); n += kReadRows) {
    const int64_t count = std::min(kReadRows, data_.neurons() - n);
    FloatMatrix y_columns(budget, count, y.rows());
    Transpose(compute, {y.view().data + n, y.rows(), count, y.cols()}, y_columns.view());
    MultiplyTransposed(compute, budget, vectors.view(), y_columns.view(),
                       {left_.row(0) + n, ranks, count, left_.cols()});
    FloatMatrix rows(budget, count, data_.hidden()), columns(budget, data_.hidden(), count);
    FloatMatrix part(budget, ranks, data_.hidden());
    ReadRows(n, n + count, rows);
    Transpose(compute, rows.view(), columns.view());
    const FloatView left{left_.row(0) + n, ranks, count, data_.neurons()};
    MultiplyTransposed(compute, budget, left, columns.view(), part.view());
    Add(compute, right_.view(), part.view());
  }
}

void TrainingFreeMaker::MakeFactors(int64_t rank, MadePredictor& made) const {
  const auto columns = static_cast<size_t>(rank);
  const size_t factors = std::min(columns, root_sizes_.size());
  for (int64_t n = 0; n < data_.neurons(); ++n) {
    float* up = made.up.data() + static_cast<size_t>(n) * columns;
    for (size_t r = 0; r < factors; ++r) {
      up[r] = left_.row(static_cast<int64_t>(r))[n] * root_sizes_[r];
    }
  }
  for (int64_t r = 0; r < static_cast<int64_t>(factors); ++r) {
    const float root = root_sizes_[static_cast<size_t>(r)];
    const float scale = root > 0 ? 1 / root : 0;
    for (int64_t c = 0; c < data_.hidden(); ++c) {
      made.down[static_cast<size_t>(r * data_.hidden() + c)] = right_.row(r)[c] * scale;
    }
  }
}

void TrainingFreeMaker::MakeFull(MadePredictor& made) const {
  const auto hidden = static_cast<size_t>(data_.hidden());
  for (size_t i = 0; i < hidden; ++i) made.down[i * hidden + i] = 1;
  for (int64_t n = 0; n < data_.neurons(); n += kReadRows) {
    const int64_t count = std::min(kReadRows, data_.neurons() - n);
    FloatMatrix rows(engine_.budget(), count, data_.hidden());
    ReadRows(n, n + count, rows);
    std::copy(rows.values().begin(), rows.values().end(),
              made.up.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(n) * hidden));
  }
}

std::vector<float> TrainingFreeMaker::MeanError(const MadePredictor& made, DType dtype) const {
  std::vector<double> mean_score(static_cast<size_t>(data_.neurons()));
  std::vector<double> mean_input(static_cast<size_t>(data_.hidden()));
  const auto tokens = static_cast<double>(data_.fit_gate.rows());
  for (int64_t t = 0; t < data_.fit_gate.rows(); ++t) {
    for (size_t n = 0; n < mean_score.size(); ++n) {
      mean_score[n] += static_cast<double>(data_.fit_gate.row(t)[n]) / tokens;
    }
    for (size_t i = 0; i < mean_input.size(); ++i) {
      mean_input[i] += static_cast<double>(data_.fit_inputs.row(t)[i]) / tokens;
    }
  }
  const std::vector<float> input(mean_input.begin(), mean_input.end());
  std::vector<float> error = StoredPredictor(engine_, made, data_.hidden(), dtype).Score(input);
  for (size_t n = 0; n < error.size(); ++n) error[n] = static_cast<float>(mean_score[n]) - error[n];
  return error;
}

MadePredictor TrainingFreeMaker::Make(int64_t rank, DType dtype, double recall) {
  MadePredictor made;
  made.rank = rank;
  made.down.resize(static_cast<size_t>(rank * data_.hidden()));
  made.up.resize(static_cast<size_t>(data_.neurons() * rank));
  made.bias.resize(static_cast<size_t>(data_.neurons()));
  if (rank == data_.hidden()) {
    MakeFull(made);
  } else {
    if (root_sizes_.empty()) Factorize();
    MakeFactors(rank, made);
  }
  made.bias = MeanError(made, dtype);
  FloatMatrix scores(engine_.budget(), data_.fit_inputs.rows(), data_.neurons());
  StoredPredictor(engine_, made, data_.hidden(), dtype).Score(data_.fit_inputs, scores);
  AddBias(engine_.compute(), made.bias, scores);
  const std::vector<float> shifts =
      ListingScores(engine_.compute().team(), scores, data_.fit_mass, recall);
  for (size_t n = 0; n < shifts.size(); ++n) made.bias[n] -= shifts[n];
  return made;
}

}  // namespace hearth
