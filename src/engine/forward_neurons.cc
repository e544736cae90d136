// FFNs of single neurons in a forward pass (engine/forward.h).
#include <algorithm>

#include "engine/forward.h"
#include "ops/elementwise.h"

namespace hearth {

// Where tokens that are decoded list neurons, no more of them than the selector tells of in a step:
// only of a prompt its answers are kept.
void Forward::RunSparse(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                        FloatView out) {
  const FloatView x = input_.x();
  is_prompt_ = x.rows >= kPrefillTokens && !is_decoding_;
  const bool may_list = selector_->mode() == FfnMode::kPredicted;
  const int64_t most = is_prompt_ || !may_list ? x.rows : kSelectTokens;
  for (int64_t first = 0; first < x.rows; first += most) {
    const int64_t count = std::min(most, x.rows - first);
    if (count < x.rows) input_.Set(x.Rows(first, count));
    const auto some = tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    if (streamed_ != nullptr) {
      RunStreamed(layer, expert, some, out.Rows(first, count));
    } else {
      RunNeurons(layer, expert, some, out.Rows(first, count));
    }
  }
}

template <class Visit>
void Forward::SelectInSteps(const SelectionQuery& query, Visit&& visit) {
  SelectionQuery step = query;
  for (int64_t first = 0; first < query.ffn_input.rows; first += kSelectTokens) {
    const int64_t count = std::min(kSelectTokens, query.ffn_input.rows - first);
    step.tokens = query.tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    step.ffn_input = query.ffn_input.Rows(first, count);
    selector_->Select(step, active_);
    if (active_.all()) return;
    visit(first);
  }
}

void Forward::Select(int64_t layer, int64_t expert, std::span<const int64_t> tokens) {
  SelectInSteps({layer, expert, tokens, input_.x(), Rows(hidden_)}, [&](int64_t first) {
    if (is_prompt_) prefill_->SetLists(compute_, first, active_.lists());
  });
  has_lists_ = !active_.all();
  laps_.Lap(ForwardOp::kFfnPredictor);
}

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
  Select(layer, expert, tokens);
  NeuronObservation observed;
  observed.layer = layer;
  observed.expert = expert;
  observed.skips_silent = selector_->mode() != FfnMode::kDense && CanSkipNeurons(ffn.activation);
  if (is_prompt_) {
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
  SelectInSteps(*next, [&](int64_t first) {
    for (size_t i = 0; i < active_.lists().size(); ++i) {
      const int64_t token = tokens[static_cast<size_t>(first) + i];
      observer_->OnFfnGuess(layer + 1, token, active_.lists()[i]);
    }
  });
}

std::optional<std::span<const int32_t>> Forward::ListOf(int64_t row) {
  if (!has_lists_) return std::nullopt;
  if (!is_prompt_) return active_.lists()[static_cast<size_t>(row)];
  observed_listed_.clear();
  prefill_->ListListed(row, observed_listed_);
  return observed_listed_;
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

SparsePrefill::BlockFn Forward::Gather(std::vector<Observed>& of_tokens) {
  return [&] {
    for (size_t i = 0; i < of_tokens.size(); ++i) {
      const auto token = static_cast<int64_t>(i);
      prefill_->ListFired(token, of_tokens[i].fired);
      prefill_->ListActive(token, of_tokens[i].active, of_tokens[i].factors);
    }
  };
}

void Forward::TellObserver(const std::vector<Observed>& of_tokens, NeuronObservation observed,
                           std::span<const int64_t> tokens, int64_t neurons) {
  for (size_t i = 0; i < of_tokens.size(); ++i) {
    observed.token = tokens[i];
    observed.listed = ListOf(static_cast<int64_t>(i));
    observed.all = {neurons, std::ssize(of_tokens[i].fired), std::ssize(of_tokens[i].active)};
    observed.fired = of_tokens[i].fired;
    observed.active = of_tokens[i].active;
    observed.factors = of_tokens[i].factors;
    observer_->OnFfnNeurons(observed);
  }
}

void Forward::RunNeuronsTogether(const FfnNeurons& ffn, NeuronObservation observed,
                                 std::span<const int64_t> tokens, FloatView out) {
  if (observer_ != nullptr) {
    std::vector<Observed> all(tokens.size());
    prefill_->Run(compute_, ffn, input_, {false, CanSkipNeurons(ffn.activation)}, out, Gather(all));
    TellObserver(all, observed, tokens, ffn.gate.rows);
  }
  SparsePrefill::BlockFn draw;
  if (map_ != nullptr) {
    draw = [&] { DrawFired(map_->Ffn(observed.layer, observed.expert), out.rows, *prefill_); };
  }
  ffn_counts_ +=
      prefill_->Run(compute_, ffn, input_, {has_lists_, observed.skips_silent}, out, draw);
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
