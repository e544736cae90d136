#include "pass/neuron_ffn.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "pass/block_norms.h"

namespace hearth {
namespace {

SparseBatchShape BatchShape(const PassWidths& widths) {
  return {widths.tokens_together, widths.hidden, widths.ffn};
}

SparsePrefillShape PrefillShape(const PassWidths& widths) {
  SparsePrefillShape shape = {widths.tokens, widths.hidden, widths.ffn, widths.threads};
  // Every thread gets some of them.
  shape.block_neurons = std::max(shape.block_neurons, 4 * kernels::kRowsOfSums * widths.threads);
  return shape;
}

}  // namespace

NeuronOperators::NeuronOperators(Budget& budget, const PassWidths& widths)
    : one(budget, widths.hidden, widths.ffn), many(budget, PrefillShape(widths)) {
  if (widths.tokens_together > 1) few.emplace(budget, BatchShape(widths));
}

uint64_t NeuronOperators::ChargedBytes(const PassWidths& widths) {
  return SparseFfn::ChargedBytes(widths.hidden, widths.ffn) +
         SparsePrefill::ChargedBytes(PrefillShape(widths)) +
         (widths.tokens_together > 1 ? SparseBatch::ChargedBytes(BatchShape(widths)) : 0);
}

void NeuronLists::VisitSteps(ActivationSelector& selector, const SelectionQuery& query,
                             const Visit& visit) {
  SelectionQuery step = query;
  for (int64_t first = 0; first < query.ffn_input.rows; first += kTokensOfQuery) {
    const int64_t count = std::min(kTokensOfQuery, query.ffn_input.rows - first);
    step.tokens = query.tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    step.ffn_input = query.ffn_input.Rows(first, count);
    selector.Select(step, active_);
    if (active_.all()) return;
    visit(first, active_.lists());
  }
}

void NeuronLists::Ask(Compute& compute, ActivationSelector& selector, const SelectionQuery& query,
                      SparsePrefill* prompt) {
  prompt_ = prompt;
  VisitSteps(selector, query, [&](int64_t first, std::span<const std::span<const int32_t>> lists) {
    if (prompt_ != nullptr) prompt_->SetLists(compute, first, lists);
  });
  has_lists_ = !active_.all();
}

SparseBatch::Lists NeuronLists::Of(int64_t first, int64_t count) const {
  if (!has_lists_) return {};
  return active_.lists().subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

std::optional<std::span<const int32_t>> NeuronLists::Of(int64_t token) {
  if (!has_lists_) return std::nullopt;
  if (prompt_ == nullptr) return active_.lists()[static_cast<size_t>(token)];
  listed_.clear();
  prompt_->ListListed(token, listed_);
  return listed_;
}

NeuronFfn::NeuronFfn(const PassContext& context, const PassWidths& widths, Budget& budget)
    : context_(context), operators_(budget, widths) {}

void NeuronFfn::Watch(NeuronMap* map) {
  map_ = map;
  // So that a pass allocates nothing.
  if (map != nullptr) fired_.reserve(static_cast<size_t>(map->neurons()));
}

void NeuronFfn::Run(const FfnCall& call) {
  const FloatView x = context_.input.x();
  is_prompt_ = x.rows >= PassShape::kPrefillTokens && pass_.kind == PassKind::kPrefill;
  const bool may_list = pass_.selector->mode() == FfnMode::kPredicted;
  const int64_t most = is_prompt_ || !may_list ? x.rows : NeuronLists::kTokensOfQuery;
  for (int64_t first = 0; first < x.rows; first += most) {
    const int64_t count = std::min(most, x.rows - first);
    if (count < x.rows) context_.input.Set(x.Rows(first, count));
    FfnCall step = call;
    step.tokens = call.tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    step.out = call.out.Rows(first, count);
    RunStep(step);
  }
  if (!context_.layer(call.layer).ffn.bias) return;
  const float* const biases = FloatsOf(context_.layer_weights(call.layer).ffn_down_bias);
  AddToRows(context_.compute, call.out, biases + call.expert * call.out.cols);
}

void NeuronFfn::Select(const FfnCall& call) {
  lists_.Ask(context_.compute, *pass_.selector,
             {call.layer, call.expert, call.tokens, context_.input.x(), pass_.residual},
             is_prompt_ ? &operators_.many : nullptr);
  context_.seam.After(PassOp::kFfnPredictor);
}

// With the residual as it is now, which one FFN and one attention block will have changed a little
// by then.
std::optional<SelectionQuery> NeuronFfn::QueryOfNext(const FfnCall& call) const {
  const int64_t next = call.layer + 1;
  if (next == context_.spec.num_layers || context_.layer(next).ffn.num_experts > 0) {
    return std::nullopt;
  }
  const LayerWeights& w = context_.layer_weights(next);
  NormInput(context_, next, {w.ffn_norm, w.ffn_norm_bias}, pass_.residual, call.out);
  return SelectionQuery{next, 0, call.tokens, call.out, pass_.residual, true};
}

void NeuronFfn::ObserveInput(const FfnCall& call) {
  PassObserver& observer = *pass_.observer;
  observer.OnFfnInput(call.layer, call.expert, call.tokens, pass_.residual, context_.input.x());
  if (!observer.wants_guesses()) return;
  const std::optional<SelectionQuery> next = QueryOfNext(call);
  if (!next) return;
  lists_.VisitSteps(*pass_.selector, *next,
                    [&](int64_t first, std::span<const std::span<const int32_t>> lists) {
                      for (size_t i = 0; i < lists.size(); ++i) {
                        const int64_t token = call.tokens[static_cast<size_t>(first) + i];
                        observer.OnFfnGuess(next->layer, token, lists[i]);
                      }
                    });
}

void NeuronFfn::ForEachBatch(FloatView out, const BatchFn& run) {
  const FloatView x = context_.input.x();
  const int64_t most = operators_.few->max_tokens();
  for (int64_t first = 0; first < x.rows; first += most) {
    const int64_t count = std::min(most, x.rows - first);
    run(x.Rows(first, count), lists_.Of(first, count), out.Rows(first, count));
  }
}

SparsePrefill::BlockFn NeuronFfn::Gather(std::vector<Observed>& of_tokens) {
  return [&] {
    for (size_t i = 0; i < of_tokens.size(); ++i) {
      const auto token = static_cast<int64_t>(i);
      operators_.many.ListFired(token, of_tokens[i].fired);
      operators_.many.ListActive(token, of_tokens[i].active, of_tokens[i].factors);
    }
  };
}

void NeuronFfn::TellObserver(const std::vector<Observed>& of_tokens, const FfnCall& call,
                             int64_t neurons) {
  NeuronObservation observed = ObservationOf(call);
  for (size_t i = 0; i < of_tokens.size(); ++i) {
    observed.token = call.tokens[i];
    observed.listed = lists_.Of(static_cast<int64_t>(i));
    observed.all = {neurons, std::ssize(of_tokens[i].fired), std::ssize(of_tokens[i].active)};
    observed.fired = of_tokens[i].fired;
    observed.active = of_tokens[i].active;
    observed.factors = of_tokens[i].factors;
    pass_.observer->OnFfnNeurons(observed);
  }
}

bool NeuronFfn::SkipsSilent(const FfnCall& call) const {
  return pass_.selector->mode() != FfnMode::kDense &&
         CanSkipNeurons(context_.layer(call.layer).ffn.activation);
}

template <class Operator>
void NeuronFfn::DrawFired(const FfnCall& call, int64_t tokens, const Operator& op) {
  for (int64_t token = 0; token < tokens; ++token) {
    fired_.clear();
    op.ListFired(token, fired_);
    map_->Add(map_->Ffn(call.layer, call.expert), NeuronPlace::kPinned, fired_);
  }
}

NeuronObservation NeuronFfn::ObservationOf(const FfnCall& call) const {
  NeuronObservation observed;
  observed.layer = call.layer;
  observed.expert = call.expert;
  observed.skips_silent = SkipsSilent(call);
  return observed;
}

void ResidentNeuronFfn::RunStep(const FfnCall& call) {
  const FfnSpec& spec = context_.layer(call.layer).ffn;
  const LayerWeights& w = context_.layer_weights(call.layer);
  const FfnNeurons ffn = {.gate = w.gate_rows.Expert(call.expert),
                          .up = w.up_rows.Expert(call.expert),
                          .down = w.down_rows.Expert(call.expert),
                          .activation = spec.activation,
                          .threshold = spec.threshold};
  if (pass_.observer != nullptr) ObserveInput(call);
  Select(call);
  if (is_prompt_) {
    RunMany(ffn, call);
  } else if (call.out.rows > 1 && operators_.few && pass_.observer == nullptr) {
    RunFew(ffn, call);
  } else {
    RunOneByOne(ffn, call);
  }
}

void ResidentNeuronFfn::RunMany(const FfnNeurons& ffn, const FfnCall& call) {
  SparsePrefill& many = operators_.many;
  if (pass_.observer != nullptr) {
    std::vector<Observed> all(call.tokens.size());
    many.Run(context_.compute, ffn, context_.input, {false, CanSkipNeurons(ffn.activation)},
             call.out, Gather(all));
    TellObserver(all, call, ffn.gate.rows);
  }
  SparsePrefill::BlockFn draw;
  if (map_ != nullptr) draw = [&] { DrawFired(call, call.out.rows, many); };
  counts_ += many.Run(context_.compute, ffn, context_.input,
                      {lists_.has_lists(), SkipsSilent(call)}, call.out, draw);
  context_.seam.After(PassOp::kFfnGateUp);
}

void ResidentNeuronFfn::RunFew(const FfnNeurons& ffn, const FfnCall& call) {
  SparseBatch& few = *operators_.few;
  ForEachBatch(call.out, [&](FloatView x, SparseBatch::Lists lists, FloatView out) {
    counts_ += few.Run(context_.compute, ffn, {x, lists, SkipsSilent(call), out});
    if (map_ != nullptr) DrawFired(call, x.rows, few);
  });
  context_.seam.After(PassOp::kFfnGateUp);
}

void ResidentNeuronFfn::RunOneByOne(const FfnNeurons& ffn, const FfnCall& call) {
  SparseFfn& one = operators_.one;
  const FloatView x = context_.input.x();
  NeuronObservation observed = ObservationOf(call);
  for (int64_t i = 0; i < x.rows; ++i) {
    const std::optional<std::span<const int32_t>> listed = lists_.Of(i);
    if (pass_.observer != nullptr) {
      observed.all = one.Activate(context_.compute, ffn, x.row(i), std::nullopt, true);
      fired_.clear();
      one.ListFired(fired_);
      observed.token = call.tokens[static_cast<size_t>(i)];
      observed.listed = listed;
      observed.fired = fired_;
      observed.active = one.active();
      observed.factors = one.factors();
      pass_.observer->OnFfnNeurons(observed);
    }
    counts_ += one.Activate(context_.compute, ffn, x.row(i), listed, observed.skips_silent);
    if (map_ != nullptr) {
      one.VisitFired([&](std::span<const int32_t> fired) {
        map_->Add(map_->Ffn(call.layer, call.expert), NeuronPlace::kPinned, fired);
      });
    }
    context_.seam.After(PassOp::kFfnGateUp);
    one.AddDown(context_.compute, ffn, call.out.row(i));
    context_.seam.After(PassOp::kFfnDown);
  }
}

}  // namespace hearth
