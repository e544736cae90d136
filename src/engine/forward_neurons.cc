// FFNs of single neurons in a forward pass (engine/forward.h).
#include <algorithm>

#include "engine/forward.h"
#include "ops/elementwise.h"

namespace hearth {

void Forward::RunNeurons(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                         FloatView out) {
  const FfnSpec& spec = spec_.layers[static_cast<size_t>(layer)].ffn;
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const FloatView x = input_.x();
  const FfnNeurons ffn = {.gate = w.gate_rows.Expert(expert),
                          .up = w.up_rows.Expert(expert),
                          .down = w.down_rows.Expert(expert),
                          .activation = spec.activation,
                          .threshold = spec.threshold};
  if (observer_ != nullptr) ObserveInput(layer, expert, tokens, out);
  selector_->Select({layer, expert, tokens, x, Rows(hidden_)}, active_);
  laps_.Lap(ForwardOp::kFfnPredictor);
  NeuronObservation observed;
  observed.layer = layer;
  observed.expert = expert;
  observed.skips_silent = selector_->mode() != FfnMode::kDense && CanSkipNeurons(ffn.activation);
  if (x.rows >= kPrefillTokens && !is_decoding_) {
    RunNeuronsTogether(ffn, observed, tokens, out);
  } else if (x.rows > 1 && batch_ && observer_ == nullptr) {
    ForEachBatch(out, [&](FloatView rows, SparseBatch::Lists lists, FloatView results) {
      ffn_counts_ += batch_->Run(compute_, ffn, rows, lists, observed.skips_silent, results);
      if (map_ != nullptr) DrawFired(map_->Ffn(layer, expert), rows.rows, *batch_);
    });
    laps_.Lap(ForwardOp::kFfnGateUp);
  } else {
    RunNeuronsOneByOne(ffn, observed, tokens, out);
  }
}

// With the residual as it is now, which one FFN and one attention block will have changed a little
// by then.
std::optional<SelectionQuery> Forward::QueryOfNext(int64_t layer, std::span<const int64_t> tokens,
                                                   FloatView scratch) {
  const auto next = static_cast<size_t>(layer + 1);
  if (next == spec_.layers.size() || spec_.layers[next].ffn.num_experts > 0) return std::nullopt;
  RmsNorm(compute_, Rows(hidden_),
          reinterpret_cast<const float*>(weights_.layers[next].ffn_norm.data),
          spec_.layers[next].norm_epsilon, scratch);
  return SelectionQuery{layer + 1, 0, tokens, scratch, Rows(hidden_), true};
}

void Forward::ObserveInput(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                           FloatView scratch) {
  observer_->OnFfnInput(layer, expert, tokens, Rows(hidden_), input_.x());
  if (!observer_->wants_guesses()) return;
  const std::optional<SelectionQuery> next = QueryOfNext(layer, tokens, scratch);
  if (!next) return;
  selector_->Select(*next, active_);
  if (active_.all()) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    observer_->OnFfnGuess(layer + 1, tokens[i], active_.lists()[i]);
  }
}

std::optional<std::span<const int32_t>> Forward::ListOf(int64_t row) const {
  if (active_.all()) return std::nullopt;
  return active_.lists()[static_cast<size_t>(row)];
}

void Forward::ForEachBatch(FloatView out, const BatchFn& run) {
  const FloatView x = input_.x();
  for (int64_t first = 0; first < x.rows; first += batch_->max_tokens()) {
    const int64_t count = std::min(batch_->max_tokens(), x.rows - first);
    SparseBatch::Lists lists;
    if (!active_.all()) {
      lists = active_.lists().subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    }
    run(x.Rows(first, count), lists, out.Rows(first, count));
  }
}

void Forward::RunNeuronsTogether(const FfnNeurons& ffn, NeuronObservation observed,
                                 std::span<const int64_t> tokens, FloatView out) {
  const int64_t neurons = ffn.gate.rows;
  if (observer_ != nullptr) {
    prefill_->Run(compute_, ffn, input_, {{}, CanSkipNeurons(ffn.activation)}, out);
    for (int64_t i = 0; i < out.rows; ++i) {
      observed_fired_.clear();
      observed_active_.clear();
      observed_factors_.clear();
      prefill_->ListFired(i, observed_fired_);
      prefill_->ListActive(i, observed_active_, observed_factors_);
      observed.token = tokens[static_cast<size_t>(i)];
      observed.listed = ListOf(i);
      observed.all = {neurons, std::ssize(observed_fired_), std::ssize(observed_active_)};
      observed.fired = observed_fired_;
      observed.active = observed_active_;
      observed.factors = observed_factors_;
      observer_->OnFfnNeurons(observed);
    }
  }
  ffn_counts_ +=
      prefill_->Run(compute_, ffn, input_, {active_.lists(), observed.skips_silent}, out);
  if (map_ != nullptr) DrawFired(map_->Ffn(observed.layer, observed.expert), out.rows, *prefill_);
  laps_.Lap(ForwardOp::kFfnGateUp);
}

void Forward::RunNeuronsOneByOne(const FfnNeurons& ffn, NeuronObservation observed,
                                 std::span<const int64_t> tokens, FloatView out) {
  const FloatView x = input_.x();
  for (int64_t i = 0; i < x.rows; ++i) {
    const std::optional<std::span<const int32_t>> listed = ListOf(i);
    if (observer_ != nullptr) {
      observed.all = neurons_->Activate(compute_, ffn, x.row(i), std::nullopt, true);
      observed_fired_.clear();
      neurons_->ListFired(observed_fired_);
      observed.token = tokens[static_cast<size_t>(i)];
      observed.listed = listed;
      observed.fired = observed_fired_;
      observed.active = neurons_->active();
      observed.factors = neurons_->factors();
      observer_->OnFfnNeurons(observed);
    }
    ffn_counts_ += neurons_->Activate(compute_, ffn, x.row(i), listed, observed.skips_silent);
    if (map_ != nullptr) DrawFired(map_->Ffn(observed.layer, observed.expert));
    laps_.Lap(ForwardOp::kFfnGateUp);
    neurons_->AddDown(compute_, ffn, out.row(i));
    laps_.Lap(ForwardOp::kFfnDown);
  }
}

}  // namespace hearth
