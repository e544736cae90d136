#include "pass/ffn_block.h"

#include <algorithm>
#include <numeric>

#include "ops/elementwise.h"
#include "pass/block_norms.h"

namespace hearth {

FfnBlock::FfnBlock(const PassContext& context, const PassWidths& widths, Budget& budget,
                   FfnExecutor& executor)
    : context_(context),
      executor_(executor),
      on_device_(context, widths, budget),
      all_rows_(static_cast<size_t>(widths.tokens)),
      loads_(static_cast<size_t>(widths.experts)),
      expert_outputs_(static_cast<size_t>(widths.experts)) {
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
}

void FfnBlock::RouteBeforeAttention(int64_t layer, const Activations& a) {
  if (!context_.layer(layer).ffn.routes_before_attention) return;
  context_.input.Set(a.hidden);
  Route(layer, a);
  context_.seam.After(PassOp::kRouter);
}

void FfnBlock::Run(int64_t layer, const Activations& a) {
  const LayerWeights& w = context_.layer_weights(layer);
  NormBefore(context_, layer, {w.ffn_norm, w.ffn_norm_bias}, a);
  context_.input.Set(a.normed);
  try {
    ComputeFfns(layer, a);
    if (on_device_.Has(layer)) on_device_.Merge(a.block_out);
  } catch (...) {
    on_device_.Abandon();
    throw;
  }
  NormAfter(context_, layer, w.ffn_after_norm, a);
}

void FfnBlock::ComputeFfns(int64_t layer, const Activations& a) {
  const FfnSpec& ffn = context_.layer(layer).ffn;
  if (ffn.num_experts == 0) return RunDense(layer, a);
  RunExperts(layer, a);
  if (ffn.shared_intermediate_size > 0 && !on_device_.HasShared(layer)) {
    AddShared(layer, a);
  }
}

void FfnBlock::RunDense(int64_t layer, const Activations& a) {
  int32_t only = 0;
  const bool is_on_device = on_device_.Has(layer);
  if (is_on_device) {
    on_device_.Launch(layer, a, {});
    FillZero(a.block_out);
  }
  if (context_.is_uploading) return;  // nothing is wanted of the executor
  executor_.BeginLayer(layer, {&only, 1}, false);
  if (!is_on_device) {
    executor_.Run({layer, 0, {all_rows_.data(), static_cast<size_t>(a.hidden.rows)}, a.block_out});
  }
  executor_.EndLayer();
}

void FfnBlock::PassBy(int64_t layer) {
  if (context_.is_uploading) return;  // nothing is wanted of the executor
  int32_t only = 0;
  executor_.BeginLayer(layer, {&only, 1}, false);
  executor_.EndLayer();
}

void FfnBlock::Route(int64_t layer, const Activations& a) {
  const FfnSpec& ffn = context_.layer(layer).ffn;
  const LayerWeights& w = context_.layer_weights(layer);
  const std::span<ExpertLoad> loads(loads_.data(), static_cast<size_t>(ffn.num_experts));
  const Product router{w.ffn_router, a.router, FloatsOf(w.router_bias)};
  MatMul(context_.compute, {&router, 1}, context_.input);
  RouteTokens(context_.compute, a.router,
              {.experts_per_token = ffn.num_experts_per_token,
               .sigmoid = ffn.router_score == RouterScore::kSigmoid,
               .bias = FloatsOf(w.choice_bias),
               .groups = ffn.num_expert_groups,
               .groups_per_token = ffn.num_groups_per_token,
               .normalize_weights = ffn.normalize_expert_weights,
               .weight_scale = ffn.expert_weight_scale},
              loads);
  used_.clear();
  for (size_t expert = 0; expert < loads.size(); ++expert) {
    if (loads[expert].tokens.empty()) continue;
    if (on_device_.HasExpert(layer, static_cast<int64_t>(expert))) continue;
    used_.push_back(static_cast<int32_t>(expert));
  }
  if (context_.is_uploading) return;  // nothing is wanted of the executor
  const int64_t outputs = a.hidden.rows * ffn.num_experts_per_token;
  keeps_outputs_ = executor_.has_order() && outputs <= a.expert_out.rows;
  executor_.BeginLayer(layer, used_, keeps_outputs_);
}

// Every expert once for all its tokens. A token's experts are added in ascending index, whoever
// else is in the pass, and in whatever order they were computed: where all outputs can wait for
// that, in the executor's.
void FfnBlock::RunExperts(int64_t layer, const Activations& a) {
  if (!context_.layer(layer).ffn.routes_before_attention) Route(layer, a);
  if (on_device_.Has(layer)) {
    on_device_.Launch(
        layer, a,
        std::span(loads_).first(static_cast<size_t>(context_.layer(layer).ffn.num_experts)));
  }
  FillZero(a.block_out);
  if (context_.is_uploading) return;
  int64_t first_row = 0;
  for (const int32_t expert : used_) {
    const ExpertLoad& load = loads_[static_cast<size_t>(expert)];
    const auto count = static_cast<int64_t>(load.tokens.size());
    const FloatView gathered = a.gathered.Rows(0, count);
    const FloatView out = a.expert_out.Rows(first_row, count);
    GatherRows(a.normed, load.tokens, gathered);
    context_.input.Set(gathered);
    context_.seam.After(PassOp::kRouter);
    executor_.Run({layer, expert, load.tokens, out});
    expert_outputs_[static_cast<size_t>(expert)] = out;
    if (keeps_outputs_) {
      first_row += count;
    } else {
      AddExpert(expert, a);
    }
  }
  if (keeps_outputs_) {
    std::sort(used_.begin(), used_.end());
    for (const int32_t expert : used_) AddExpert(expert, a);
  }
  executor_.EndLayer();
  context_.seam.After(PassOp::kRouter);
}

// block_out += weight * ffn(normed); the weight is sigmoid(w . normed), or 1.
void FfnBlock::AddShared(int64_t layer, const Activations& a) {
  const FfnSpec& ffn = context_.layer(layer).ffn;
  const LayerWeights& w = context_.layer_weights(layer);
  Compute& compute = context_.compute;
  context_.input.Set(a.normed);
  context_.seam.Saw(layer, MatrixInput::kSharedGateUp, a.normed);
  const Product gate_up[] = {{w.shared_gate, a.shared_gate}, {w.shared_up, a.shared_up}};
  MatMul(compute, gate_up, context_.input);
  const AdaptedProduct adapted[] = {{AdaptedMatrix::kSharedGate, a.shared_gate},
                                    {AdaptedMatrix::kSharedUp, a.shared_up}};
  context_.adapters.Add(layer, a.normed, adapted);
  context_.seam.After(PassOp::kFfnGateUp);
  ApplyFfnActivation(compute, ffn.activation, ffn.threshold, a.shared_gate, a.shared_up);
  context_.seam.After(PassOp::kFfnActivation);
  context_.input.Set(a.shared_gate);
  context_.seam.Saw(layer, MatrixInput::kSharedDown, a.shared_gate);
  const Product down{w.shared_down, a.shared_out};
  MatMul(compute, {&down, 1}, context_.input);
  const AdaptedProduct adapted_down = {AdaptedMatrix::kSharedDown, a.shared_out};
  context_.adapters.Add(layer, a.shared_gate, {&adapted_down, 1});
  context_.seam.After(PassOp::kFfnDown);
  if (ffn.shared_gate) ScaleBySigmoid(compute, a.normed, FloatsOf(w.shared_router), a.shared_out);
  Add(compute, a.block_out, a.shared_out);
  context_.seam.After(PassOp::kRouter);
}

void FfnBlock::AddExpert(int32_t expert, const Activations& a) {
  const ExpertLoad& load = loads_[static_cast<size_t>(expert)];
  ScatterAddRows(context_.compute, expert_outputs_[static_cast<size_t>(expert)], load.tokens,
                 load.weights, a.block_out);
}

}  // namespace hearth
