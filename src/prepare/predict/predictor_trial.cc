#include "prepare/predict/predictor_trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/dequantize.h"

namespace hearth {
namespace {

FloatMatrix Stored(Engine& engine, const std::vector<float>& values, int64_t rows, int64_t cols,
                   DType dtype) {
  FloatMatrix out(engine.budget(), rows, cols);
  std::copy(values.begin(), values.end(), out.values().begin());
  StoreAndRead(engine.compute(), dtype, out.view(), out);
  return out;
}

}  // namespace

void StoreAndRead(Compute& compute, DType dtype, FloatView in, FloatMatrix& out) {
  const size_t row_bytes = RowBytes(dtype, static_cast<size_t>(in.cols));
  compute.team().ParallelFor(in.rows, 64, [&](int64_t begin, int64_t end, int) {
    std::vector<std::byte> bytes(row_bytes);
    for (int64_t r = begin; r < end; ++r) {
      kernels::Quantize(dtype, in.row(r), in.cols, bytes.data());
      kernels::Dequantize(dtype, bytes.data(), in.cols, out.row(r));
    }
  });
}

StoredPredictor::StoredPredictor(Engine& engine, const MadePredictor& made, int64_t hidden,
                                 DType dtype)
    : engine_(engine),
      down_(Stored(engine, made.down, made.rank, hidden, dtype)),
      up_(Stored(engine, made.up, static_cast<int64_t>(made.bias.size()), made.rank, dtype)) {}

void StoredPredictor::Score(const FloatMatrix& inputs, FloatMatrix& scores) const {
  FloatMatrix inner(engine_.budget(), inputs.rows(), down_.rows());
  MultiplyTransposed(engine_.compute(), engine_.budget(), inputs.view(), down_.view(),
                     inner.view());
  MultiplyTransposed(engine_.compute(), engine_.budget(), inner.view(), up_.view(), scores.view());
}

std::vector<float> StoredPredictor::Score(std::span<const float> input) const {
  FloatMatrix inputs(engine_.budget(), 1, static_cast<int64_t>(input.size()));
  FloatMatrix scores(engine_.budget(), 1, up_.rows());
  std::copy(input.begin(), input.end(), inputs.row(0));
  Score(inputs, scores);
  return {scores.values().begin(), scores.values().end()};
}

void AddBias(Compute& compute, std::span<const float> bias, FloatMatrix& scores) {
  compute.team().ParallelFor(scores.rows(), 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = scores.row(t);
      for (size_t n = 0; n < bias.size(); ++n) row[n] += bias[n];
    }
  });
}

float ThresholdFor(const FloatMatrix& scores, const FloatMatrix& mass, double recall) {
  std::vector<std::pair<float, float>> active;  // score, mass
  double total = 0;
  active.reserve(mass.values().size() -
                 static_cast<size_t>(std::ranges::count(mass.values(), 0.0f)));
  for (size_t i = 0; i < mass.values().size(); ++i) {
    if (mass.values()[i] == 0) continue;
    active.emplace_back(scores.values()[i], mass.values()[i]);
    total += static_cast<double>(mass.values()[i]);
  }
  if (active.empty()) return 0;
  std::sort(active.begin(), active.end(), std::greater<>());
  double found = 0;
  size_t last = 0;
  for (; last < active.size(); ++last) {
    found += static_cast<double>(active[last].second);
    if (found >= recall * total) break;
  }
  last = std::min(last, active.size() - 1);
  // Just under the score of the last one that is needed.
  return std::nextafter(active[last].first, -std::numeric_limits<float>::infinity());
}

std::optional<double> MeanActiveMass(const FloatMatrix& mass) {
  double sum = 0;
  uint64_t active = 0;
  for (const float m : mass.values()) {
    sum += static_cast<double>(m);
    active += m != 0 ? 1 : 0;
  }
  if (active == 0) return std::nullopt;
  return sum / static_cast<double>(active);
}

TrialFigures Judge(const FloatMatrix& scores, const FloatMatrix& mass, float threshold) {
  uint64_t active = 0, listed = 0, found = 0;
  double total = 0, found_mass = 0;
  for (size_t i = 0; i < mass.values().size(); ++i) {
    const float m = mass.values()[i];
    const bool is_listed = scores.values()[i] > threshold;
    active += m != 0 ? 1 : 0;
    listed += is_listed ? 1 : 0;
    total += static_cast<double>(m);
    if (!is_listed) continue;
    found += m != 0 ? 1 : 0;
    found_mass += static_cast<double>(m);
  }
  const auto count = static_cast<double>(std::max<size_t>(mass.values().size(), 1));
  TrialFigures figures;
  figures.recall = total > 0 ? found_mass / total : 1;
  figures.precision = listed > 0 ? static_cast<double>(found) / static_cast<double>(listed) : 1;
  figures.active = static_cast<double>(active) / count;
  figures.listed = static_cast<double>(listed) / count;
  return figures;
}

}  // namespace hearth
