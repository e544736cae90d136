// FFNs of which only a part is in memory (engine/forward.h; DESIGN sections 7 and 8).
#include "engine/forward.h"
#include "pipeline/streamed_ffns.h"

namespace hearth {

void Forward::RunStreamed(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                          FloatView out) {
  const FfnSpec& spec = spec_.layers[static_cast<size_t>(layer)].ffn;
  const StreamedFfn ffn = {layer, expert, spec.activation, spec.threshold};
  const FloatView x = input_.x();
  if (observer_ != nullptr) ObserveInput(layer, expert, tokens, out);
  if (streamed_->looks_ahead()) {
    const std::optional<SelectionQuery> next = QueryOfNext(layer, tokens, out);
    ListGuess* guess = next ? selector_->BeginGuess(*next) : nullptr;
    if (guess != nullptr) streamed_->Expect({.layer = layer + 1}, *guess);
  }
  streamed_->PollAhead();
  Select(layer, expert, tokens);
  const bool skip_silent = selector_->mode() != FfnMode::kDense && CanSkipNeurons(ffn.activation);
  if (observer_ != nullptr) ObserveStreamed(ffn, skip_silent, tokens, out);
  const bool holds_gates = streamed_->store().plan().holds_gates;
  const bool reads_lists = has_lists_ || (skip_silent && holds_gates);
  const bool reads_ranges = is_prompt_ || !reads_lists;
  if (map_ != nullptr && reads_ranges) DrawRanges(map_->Ffn(layer, expert), x.rows);
  if (is_prompt_) {
    StreamPrompt(ffn, {has_lists_, skip_silent}, out, {});
  } else if (reads_ranges) {
    StreamAll(ffn, skip_silent, out);
  } else if (x.rows > 1 && batch_) {
    ForEachBatch(out, [&](FloatView rows, SparseBatch::Lists lists, FloatView results) {
      ffn_counts_ += streamed_->RunBatch(compute_, *batch_, ffn, rows, lists, skip_silent, results);
    });
  } else {
    for (int64_t i = 0; i < x.rows; ++i) {
      ffn_counts_ += streamed_->Run(compute_, ffn, x.row(i), ListOf(i), skip_silent, out.row(i));
    }
  }
  laps_.Lap(ForwardOp::kFfnGateUp);
}

// Tells the observer what all neurons do, listed or not; `out` is scratch.
void Forward::ObserveStreamed(const StreamedFfn& ffn, bool skip_silent,
                              std::span<const int64_t> tokens, FloatView out) {
  std::vector<Observed> all(tokens.size());
  const SparseFfnCounts before = ffn_counts_;
  StreamPrompt(ffn, {false, CanSkipNeurons(ffn.activation)}, out, Gather(all));
  ffn_counts_ = before;
  NeuronObservation observed;
  observed.layer = ffn.layer;
  observed.expert = ffn.expert;
  observed.skips_silent = skip_silent;
  TellObserver(all, observed, tokens, streamed_->store().source().neurons);
}

// Tokens together, range by range.
void Forward::StreamPrompt(const StreamedFfn& ffn, const SparsePrefill::Choice& choice,
                           FloatView out, const SparsePrefill::BlockFn& after_block) {
  const int64_t neurons = streamed_->store().source().neurons;
  const auto visit = [&](int64_t first, const FfnNeurons& rows, const NeuronsArrive* arrive) {
    const SparsePrefill::Range range = {.first = first,
                                        .is_first = first == 0,
                                        .is_last = first + rows.gate.rows == neurons,
                                        .arrive = arrive};
    ffn_counts_ += prefill_->RunRange(compute_, rows, input_, range, choice, out, after_block);
  };
  streamed_->ForEachArriving(compute_, ffn, visit);
}

// All neurons of tokens that are decoded, range by range.
void Forward::StreamAll(const StreamedFfn& ffn, bool skip_silent, FloatView out) {
  const FloatView x = input_.x();
  streamed_->ForEachRange(compute_, ffn, [&](int64_t first, const FfnNeurons& rows) {
    if (x.rows > 1 && batch_) {
      ForEachBatch(out, [&](FloatView tokens, SparseBatch::Lists, FloatView results) {
        ffn_counts_ += batch_->Run(compute_, rows, tokens, {}, skip_silent, results, first > 0);
      });
      return;
    }
    for (int64_t i = 0; i < x.rows; ++i) {
      ffn_counts_ += neurons_->Activate(compute_, rows, x.row(i), std::nullopt, skip_silent);
      neurons_->AddDown(compute_, rows, out.row(i), first > 0);
    }
  });
}

}  // namespace hearth
