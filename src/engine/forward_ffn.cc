// FFNs as matrices, and mixtures of them, in a forward pass (engine/forward.h).
#include <algorithm>
#include <array>

#include "engine/forward.h"
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

void Forward::DenseFfn(int64_t layer) {
  input_.Set(Rows(normed_));
  int32_t only = 0;
  if (matrices_ != nullptr) matrices_->BeginLayer(layer, {&only, 1}, false);
  RunFfn(layer, 0, {all_rows_.data(), static_cast<size_t>(num_rows_)}, Rows(block_out_));
  if (matrices_ != nullptr) matrices_->EndLayer();
}

void Forward::RunFfn(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                     FloatView out) {
  const FfnSpec& ffn = spec_.layers[static_cast<size_t>(layer)].ffn;
  if (streamed_ != nullptr || weights_.layers[static_cast<size_t>(layer)].has_rows()) {
    return RunSparse(layer, expert, tokens, out);
  }
  const FloatView gate = gate_.Rows(0, out.rows), up = up_.Rows(0, out.rows);
  const FfnProduct gate_up[] = {{FfnMatrix::kGate, gate}, {FfnMatrix::kUp, up}};
  const FfnProduct down = {FfnMatrix::kDown, out};
  if (observer_ != nullptr) {
    observer_->OnFfnInput(layer, expert, tokens, Rows(hidden_), input_.x());
  }
  selector_->Select({layer, expert, tokens, input_.x(), Rows(hidden_)}, active_);
  if (active_.all()) {
    MultiplyFfn(layer, expert, gate_up);
  } else {
    MultiplyListed(layer, expert, gate_up);
  }
  laps_.Lap(ForwardOp::kFfnGateUp);
  if (observer_ != nullptr) observer_->OnFfnGateUp(layer, expert, tokens, gate, up);
  ApplyFfnActivation(compute_, ffn.activation, ffn.threshold, gate, up);
  if (observer_ != nullptr) observer_->OnFfnActivation(layer, expert, tokens, gate);
  laps_.Lap(ForwardOp::kFfnActivation);
  input_.Set(gate);
  MultiplyFfn(layer, expert, {&down, 1});
  laps_.Lap(ForwardOp::kFfnDown);
}

WeightView Forward::MatrixInMemory(int64_t layer, int64_t expert, FfnMatrix which) const {
  return weights_.layers[static_cast<size_t>(layer)].Matrix(which).Expert(expert);
}

void Forward::MultiplyFfn(int64_t layer, int64_t expert, std::span<const FfnProduct> products) {
  if (matrices_ != nullptr) return matrices_->Multiply(compute_, expert, products, input_);
  std::array<Product, kNumFfnMatrices> in_memory;
  for (size_t i = 0; i < products.size(); ++i) {
    in_memory[i] = {MatrixInMemory(layer, expert, products[i].which), products[i].out};
  }
  MatMul(compute_, {in_memory.data(), products.size()}, input_);
}

void Forward::MultiplyListed(int64_t layer, int64_t expert, std::span<const FfnProduct> products) {
  if (matrices_ != nullptr) {
    // Extents hold rows of all neurons: nothing would be read less.
    matrices_->Multiply(compute_, expert, products, input_);
    for (const FfnProduct& product : products) KeepListed(active_.lists(), product.out);
    return;
  }
  for (const FfnProduct& product : products) {
    MatMulActive(compute_, {MatrixInMemory(layer, expert, product.which), product.out}, input_,
                 active_.lists());
  }
}

void Forward::RouteToExperts(int64_t layer) {
  const FfnSpec& ffn = spec_.layers[static_cast<size_t>(layer)].ffn;
  input_.Set(Rows(normed_));
  const Product router{weights_.layers[static_cast<size_t>(layer)].ffn_router, Rows(router_)};
  MatMul(compute_, {&router, 1}, input_);
  RouteTokens(compute_, Rows(router_),
              {.experts_per_token = ffn.num_experts_per_token,
               .normalize_weights = ffn.normalize_expert_weights,
               .weight_scale = ffn.expert_weight_scale},
              expert_loads_);
  used_experts_.clear();
  for (size_t expert = 0; expert < expert_loads_.size(); ++expert) {
    if (!expert_loads_[expert].tokens.empty()) {
      used_experts_.push_back(static_cast<int32_t>(expert));
    }
  }
}

// Every expert once for all its tokens. A token's experts are added in ascending index, whoever
// else is in the batch, and in whatever order they were computed.
void Forward::ExpertFfn(int64_t layer) {
  RouteToExperts(layer);
  const FfnSpec& ffn = spec_.layers[static_cast<size_t>(layer)].ffn;
  // Experts that must be read come last where all outputs can wait to be added in order.
  const bool keeps_outputs =
      matrices_ != nullptr && num_rows_ * ffn.num_experts_per_token <= expert_out_.rows;
  if (matrices_ != nullptr) matrices_->BeginLayer(layer, used_experts_, keeps_outputs);
  FillZero(Rows(block_out_));
  int64_t first_row = 0;
  for (const int32_t expert : used_experts_) {
    const ExpertLoad& load = expert_loads_[static_cast<size_t>(expert)];
    const auto count = static_cast<int64_t>(load.tokens.size());
    const FloatView gathered = gathered_.Rows(0, count);
    const FloatView out = expert_out_.Rows(first_row, count);
    GatherRows(normed_, load.tokens, gathered);
    input_.Set(gathered);
    laps_.Lap(ForwardOp::kRouter);
    RunFfn(layer, expert, load.tokens, out);
    expert_outputs_[static_cast<size_t>(expert)] = out;
    if (keeps_outputs) {
      first_row += count;
    } else {
      AddExpert(expert);
    }
  }
  if (keeps_outputs) {
    std::sort(used_experts_.begin(), used_experts_.end());
    for (const int32_t expert : used_experts_) AddExpert(expert);
  }
  if (matrices_ != nullptr) matrices_->EndLayer();
  laps_.Lap(ForwardOp::kRouter);
}

void Forward::AddExpert(int32_t expert) {
  const ExpertLoad& load = expert_loads_[static_cast<size_t>(expert)];
  ScatterAddRows(compute_, expert_outputs_[static_cast<size_t>(expert)], load.tokens, load.weights,
                 block_out_);
}

}  // namespace hearth
