#include "prepare/predict/ffn_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "ops/elementwise.h"
#include "ops/linear.h"
#include "pass/pass_context.h"

namespace hearth {
namespace {

// Tokens that enter a product at a time; bounds the memory of their quantized form.
constexpr int64_t kPassTokens = 256;

// gate and up of all rows of x; up has no rows where the FFN has none.
void ComputeProducts(Engine& engine, const FfnMatrices& matrices, FloatView x, FloatView gate,
                     FloatView up) {
  MatMulInput input(engine.budget(), kPassTokens, x.cols);
  for (int64_t t = 0; t < x.rows; t += kPassTokens) {
    const int64_t count = std::min(kPassTokens, x.rows - t);
    input.Set(x.Rows(t, count));
    const Product both[] = {{matrices.gate(), gate.Rows(t, count)},
                            {matrices.up(), up.rows > 0 ? up.Rows(t, count) : up}};
    const std::span<const Product> products(both);
    MatMul(engine.compute(), up.rows > 0 ? products : products.first(1), input);
  }
  if (matrices.biases() != nullptr) AddToRows(engine.compute(), gate, matrices.biases());
}

// mass = |act(gate, up)|, or |act(gate)|.
void ComputeMass(Engine& engine, int64_t layer, const FloatMatrix& gate, const FloatMatrix& up,
                 FloatMatrix& mass) {
  const FfnSpec& ffn = engine.model().spec().layers[static_cast<size_t>(layer)].ffn;
  std::copy(gate.values().begin(), gate.values().end(), mass.values().begin());
  if (up.rows() > 0) {
    ApplyFfnActivation(engine.compute(), ffn.activation, ffn.threshold, mass.view(), up.view());
  } else {
    ApplyActivation(engine.compute(), ffn.activation, ffn.threshold, mass.view());
  }
  for (float& m : mass.values()) m = std::abs(m);
}

// The tokens of [begin, end) that an expert saw, all of them where it saw few.
std::vector<int64_t> ChooseTokens(const LayerSamples& samples, int64_t expert, int64_t begin,
                                  int64_t end, int64_t few) {
  const std::vector<int64_t>& own = samples.TokensOf(expert);
  std::vector<int64_t> tokens(std::lower_bound(own.begin(), own.end(), begin),
                              std::lower_bound(own.begin(), own.end(), end));
  if (static_cast<int64_t>(tokens.size()) >= std::min(few, end - begin)) return tokens;
  tokens.resize(static_cast<size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

FloatMatrix ReadInputs(Budget& budget, const LayerSamples& samples, PredictorInput which,
                       const std::vector<int64_t>& tokens) {
  FloatMatrix out(budget, static_cast<int64_t>(tokens.size()), samples.hidden());
  samples.Read(which, tokens, out.view());
  return out;
}

}  // namespace

FfnMatrices::FfnMatrices(Engine& engine, int64_t layer, int64_t expert)
    : layer_(layer), expert_(expert) {
  const FfnSpec& ffn = engine.model().spec().layers[static_cast<size_t>(layer)].ffn;
  const BundleKind kind = BundleKindOf(ffn);
  const FfnMatrix first = kind.is_gated ? FfnMatrix::kGate : FfnMatrix::kUp;
  gate_ = engine.MatrixOf(layer, expert, first, gate_copy_);
  if (kind.is_gated) up_ = engine.MatrixOf(layer, expert, FfnMatrix::kUp, up_copy_);
  const LayerWeights& weights = engine.model().weights().layers[static_cast<size_t>(layer)];
  if (kind.has_bias) {
    biases_ = FloatsOf(weights.Bias(first)) + expert * ffn.intermediate_size;
  }
}

FfnData ComputeFfnData(Engine& engine, const FfnMatrices& matrices, const LayerSamples& samples,
                       PredictorInput input, int64_t held_from) {
  Budget& budget = engine.budget();
  const int64_t layer = matrices.layer(), expert = matrices.expert();
  const int64_t neurons =
      engine.model().spec().layers[static_cast<size_t>(layer)].ffn.intermediate_size;
  const std::vector<int64_t> fit = ChooseTokens(samples, expert, 0, held_from, kFewTokens);
  const std::vector<int64_t> held =
      ChooseTokens(samples, expert, held_from, samples.tokens(), kFewTokens / 4);
  const auto fit_tokens = static_cast<int64_t>(fit.size());
  const auto held_tokens = static_cast<int64_t>(held.size());
  FfnData data;
  data.fit_inputs = ReadInputs(budget, samples, PredictorInput::kFfnInput, fit);
  data.fit_gate = FloatMatrix(budget, fit_tokens, neurons);
  const bool is_gated = !matrices.up().empty();
  if (is_gated) data.fit_up = FloatMatrix(budget, fit_tokens, neurons);
  data.fit_mass = FloatMatrix(budget, fit_tokens, neurons);
  ComputeProducts(engine, matrices, data.fit_inputs.view(), data.fit_gate.view(),
                  data.fit_up.view());
  ComputeMass(engine, layer, data.fit_gate, data.fit_up, data.fit_mass);
  data.held_inputs = ReadInputs(budget, samples, PredictorInput::kFfnInput, held);
  data.held_mass = FloatMatrix(budget, held_tokens, neurons);
  FloatMatrix gate(budget, held_tokens, neurons), up;
  if (is_gated) up = FloatMatrix(budget, held_tokens, neurons);
  ComputeProducts(engine, matrices, data.held_inputs.view(), gate.view(), up.view());
  ComputeMass(engine, layer, gate, up, data.held_mass);
  if (input == PredictorInput::kResidual) {
    samples.Read(input, fit, data.fit_inputs.view());
    samples.Read(input, held, data.held_inputs.view());
  }
  return data;
}

}  // namespace hearth
