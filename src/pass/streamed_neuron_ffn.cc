#include "pass/streamed_neuron_ffn.h"

#include <optional>
#include <vector>

namespace hearth {

void StreamedNeuronFfn::Begin(const FfnPass& pass) {
  NeuronFfn::Begin(pass);
  // Lists of more rows than are computed together are not guessed together either.
  const bool is_together = pass.kind != PassKind::kPrefill && pass.rows <= tokens_together_;
  streamed_.BeginPass(is_together ? pass.rows : 0);
}

void StreamedNeuronFfn::AfterOp(PassOp op) noexcept {
  if (op == PassOp::kAttentionQkv || op == PassOp::kAttention || op == PassOp::kAttentionOutput) {
    streamed_.PollAhead();
  }
}

void StreamedNeuronFfn::Watch(NeuronMap* map) {
  NeuronFfn::Watch(map);
  streamed_.Watch(map);
}

StreamedFfn StreamedNeuronFfn::FfnOf(const FfnCall& call) const {
  const FfnSpec& spec = context_.layer(call.layer).ffn;
  return {call.layer, call.expert, spec.activation, spec.threshold};
}

void StreamedNeuronFfn::LookAhead(const FfnCall& call) {
  if (streamed_.looks_ahead()) {
    const std::optional<SelectionQuery> next = QueryOfNext(call);
    ListGuess* guess = next ? pass_.selector->BeginGuess(*next) : nullptr;
    if (guess != nullptr) streamed_.Expect({.layer = next->layer}, *guess);
  }
  streamed_.PollAhead();
}

void StreamedNeuronFfn::RunStep(const FfnCall& call) {
  if (pass_.observer != nullptr) ObserveInput(call);
  LookAhead(call);
  Select(call);
  if (pass_.observer != nullptr) Observe(call);
  // Where gates are in memory, or read first, only what fires is read.
  const bool reads_lists = lists_.has_lists() || (SkipsSilent(call) && streamed_.finds_firing());
  if (map_ != nullptr && (is_prompt_ || !reads_lists)) DrawRanges(call);
  if (is_prompt_) {
    RunMany(call, {lists_.has_lists(), SkipsSilent(call)}, {});
  } else if (reads_lists) {
    RunLists(call);
  } else {
    RunRanges(call);
  }
  context_.seam.After(PassOp::kFfnGateUp);
}

void StreamedNeuronFfn::Observe(const FfnCall& call) {
  std::vector<Observed> all(call.tokens.size());
  const SparseFfnCounts before = counts_;
  RunMany(call, {false, CanSkipNeurons(context_.layer(call.layer).ffn.activation)}, Gather(all));
  counts_ = before;
  TellObserver(all, call, streamed_.store().source().neurons);
}

void StreamedNeuronFfn::RunMany(const FfnCall& call, const SparsePrefill::Choice& choice,
                                const SparsePrefill::BlockFn& after_block) {
  const int64_t neurons = streamed_.store().source().neurons;
  const auto visit = [&](int64_t first, const FfnNeurons& rows, const NeuronsArrive* arrive) {
    const SparsePrefill::Range range = {.first = first,
                                        .is_first = first == 0,
                                        .is_last = first + rows.gate.rows == neurons,
                                        .arrive = arrive,
                                        .after_block = after_block};
    counts_ +=
        operators_.many.RunRange(context_.compute, rows, context_.input, range, choice, call.out);
  };
  streamed_.ForEachArriving(context_.compute, FfnOf(call), visit);
}

void StreamedNeuronFfn::RunRanges(const FfnCall& call) {
  const FloatView x = context_.input.x();
  const bool skips_silent = SkipsSilent(call);
  if (x.rows > 1 && operators_.few) {
    const auto visit = [&](int64_t first, const FfnNeurons& rows) {
      ForEachBatch(call.out, [&](FloatView tokens, SparseBatch::Lists, FloatView out) {
        counts_ +=
            operators_.few->Run(context_.compute, rows, {tokens, {}, skips_silent, out}, first > 0);
      });
    };
    return streamed_.ForEachRange(context_.compute, FfnOf(call), RangeRows::kInOrder, visit);
  }
  const auto visit = [&](int64_t first, const FfnNeurons& rows) {
    SparseFfn& one = operators_.one;
    for (int64_t i = 0; i < x.rows; ++i) {
      counts_ += one.Activate(context_.compute, rows, x.row(i), std::nullopt, skips_silent);
      one.AddDown(context_.compute, rows, call.out.row(i), first > 0);
    }
  };
  streamed_.ForEachRange(context_.compute, FfnOf(call), RangeRows::kAnywhere, visit);
}

void StreamedNeuronFfn::RunLists(const FfnCall& call) {
  const FloatView x = context_.input.x();
  const StreamedFfn ffn = FfnOf(call);
  const bool skips_silent = SkipsSilent(call);
  if (x.rows > 1 && operators_.few) {
    ForEachBatch(call.out, [&](FloatView tokens, SparseBatch::Lists lists, FloatView out) {
      counts_ += streamed_.RunBatch(context_.compute, *operators_.few, ffn,
                                    {tokens, lists, skips_silent, out});
    });
    return;
  }
  for (int64_t i = 0; i < x.rows; ++i) {
    counts_ +=
        streamed_.Run(context_.compute, ffn, x.row(i), lists_.Of(i), skips_silent, call.out.row(i));
  }
}

void StreamedNeuronFfn::DrawRanges(const FfnCall& call) {
  const int64_t ffn = map_->Ffn(call.layer, call.expert);
  const BundleStore& store = streamed_.store();
  const int64_t pinned = store.plan().pinned_neurons;
  const auto draw = [&](NeuronPlace place, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < call.out.rows; ++i) map_->AddRange(ffn, place, begin, end);
  };
  draw(NeuronPlace::kPinned, 0, pinned);
  const auto is_cached = [&](int64_t neuron) { return store.CachedSlot(ffn, neuron) >= 0; };
  for (int64_t begin = pinned, end; begin < map_->neurons(); begin = end) {
    const bool cached = is_cached(begin);
    for (end = begin + 1; end < map_->neurons() && is_cached(end) == cached;) ++end;
    draw(cached ? NeuronPlace::kCached : NeuronPlace::kRead, begin, end);
  }
}

}  // namespace hearth
