#include "pass/matrix_ffn.h"

#include <algorithm>
#include <array>

#include "ops/elementwise.h"

namespace hearth {
namespace {

// Zeros where a token's list has no neuron; lists ascend.
void KeepListed(std::span<const std::span<const int32_t>> lists, FloatView out) {
  for (int64_t t = 0; t < out.rows; ++t) {
    float* const row = out.row(t);
    float* rest = row;
    for (const int32_t neuron : lists[static_cast<size_t>(t)]) {
      std::fill(rest, row + neuron, 0.0f);
      rest = row + neuron + 1;
    }
    std::fill(rest, row + out.cols, 0.0f);
  }
}

}  // namespace

void MatrixFfn::Run(const FfnCall& call) {
  const FfnSpec& ffn = context_.layer(call.layer).ffn;
  const FloatView x = context_.input.x();
  FloatView gate = gate_.Rows(0, call.out.rows), up = up_.Rows(0, call.out.rows);
  gate.cols = up.cols = ffn.intermediate_size;  // layers may differ
  const FfnProduct both[] = {{FfnMatrix::kGate, gate}, {FfnMatrix::kUp, up}};
  const FfnProduct alone = {FfnMatrix::kUp, gate};  // of a two-matrix FFN
  const bool is_gated = ffn.kind == FfnKind::kGated;
  const std::span<const FfnProduct> gate_up = is_gated ? both : std::span(&alone, 1);
  const FfnProduct down = {FfnMatrix::kDown, call.out};
  PassObserver* const observer = pass_.observer;
  if (observer != nullptr) {
    observer->OnFfnInput(call.layer, call.expert, call.tokens, pass_.residual, x);
  }
  pass_.selector->Select({call.layer, call.expert, call.tokens, x, pass_.residual}, active_);
  if (active_.all()) {
    Multiply(call.layer, call.expert, gate_up);
    AddBiases(call, gate_up);
    AddAdapters(call, x, gate_up);
  } else {
    MultiplyListed(call.layer, call.expert, gate_up, active_.lists());
    const bool has_biases = AddBiases(call, gate_up);
    if (AddAdapters(call, x, gate_up) || has_biases) {
      for (const FfnProduct& product : gate_up) KeepListed(active_.lists(), product.out);
    }
  }
  context_.seam.After(PassOp::kFfnGateUp);
  if (observer != nullptr) {
    observer->OnFfnGateUp(call.layer, call.expert, call.tokens, gate, is_gated ? up : gate);
  }
  if (is_gated) {
    ApplyFfnActivation(context_.compute, ffn.activation, ffn.threshold, gate, up);
  } else {
    ApplyActivation(context_.compute, ffn.activation, ffn.threshold, gate);
  }
  if (observer != nullptr) observer->OnFfnActivation(call.layer, call.expert, call.tokens, gate);
  context_.seam.After(PassOp::kFfnActivation);
  context_.input.Set(gate);
  Multiply(call.layer, call.expert, {&down, 1});
  AddBiases(call, {&down, 1});
  AddAdapters(call, gate, {&down, 1});
  context_.seam.After(PassOp::kFfnDown);
}

bool MatrixFfn::AddBiases(const FfnCall& call, std::span<const FfnProduct> products) const {
  if (!context_.layer(call.layer).ffn.bias) return false;
  for (const FfnProduct& product : products) {
    const float* const all = FloatsOf(context_.layer_weights(call.layer).Bias(product.which));
    AddToRows(context_.compute, product.out, all + call.expert * product.out.cols);
  }
  return true;
}

bool MatrixFfn::AddAdapters(const FfnCall& call, FloatView x,
                            std::span<const FfnProduct> products) const {
  constexpr AdaptedMatrix kAdapted[] = {AdaptedMatrix::kGate, AdaptedMatrix::kUp,
                                        AdaptedMatrix::kDown};
  if (!context_.adapters.any() || context_.layer(call.layer).ffn.num_experts > 0) return false;
  std::array<AdaptedProduct, kNumFfnMatrices> adapted;
  for (size_t i = 0; i < products.size(); ++i) {
    adapted[i] = {kAdapted[static_cast<size_t>(products[i].which)], products[i].out};
  }
  context_.adapters.Add(call.layer, x, {adapted.data(), products.size()});
  return true;
}

WeightView ResidentMatrixFfn::Matrix(int64_t layer, int64_t expert, FfnMatrix which) const {
  const LayerWeights& w = context_.layer_weights(layer);
  return w.Matrix(which).Expert(w.PlaceOf(expert));
}

void ResidentMatrixFfn::Multiply(int64_t layer, int64_t expert,
                                 std::span<const FfnProduct> products) {
  std::array<Product, kNumFfnMatrices> in_memory;
  for (size_t i = 0; i < products.size(); ++i) {
    in_memory[i] = {Matrix(layer, expert, products[i].which), products[i].out};
  }
  MatMul(context_.compute, {in_memory.data(), products.size()}, context_.input);
}

void ResidentMatrixFfn::MultiplyListed(int64_t layer, int64_t expert,
                                       std::span<const FfnProduct> products,
                                       std::span<const std::span<const int32_t>> lists) {
  for (const FfnProduct& product : products) {
    MatMulActive(context_.compute, {Matrix(layer, expert, product.which), product.out},
                 context_.input, lists);
  }
}

void StreamedMatrixFfn::Begin(const FfnPass& pass) {
  MatrixFfn::Begin(pass);
  matrices_.BeginPass();
}

void StreamedMatrixFfn::Multiply(int64_t /*layer*/, int64_t expert,
                                 std::span<const FfnProduct> products) {
  matrices_.Multiply(context_.compute, expert, products, context_.input);
}

// Extents hold rows of all neurons: nothing would be read less.
void StreamedMatrixFfn::MultiplyListed(int64_t layer, int64_t expert,
                                       std::span<const FfnProduct> products,
                                       std::span<const std::span<const int32_t>> lists) {
  Multiply(layer, expert, products);
  for (const FfnProduct& product : products) KeepListed(lists, product.out);
}

}  // namespace hearth
