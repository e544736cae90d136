// FFNs of which only a part is in memory (engine/forward.h; DESIGN sections 7 and 8).
#include "base/error.h"
#include "engine/forward.h"
#include "pipeline/streamed_ffns.h"

namespace hearth {

void Forward::RunStreamed(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                          FloatView out) {
  if (observer_ != nullptr) {
    throw Error(ErrorCode::kUnsupported, "--memory",
                "neurons can only be observed where all of them are in memory");
  }
  const FfnSpec& spec = spec_.layers[static_cast<size_t>(layer)].ffn;
  const StreamedFfn ffn = {layer, expert, spec.activation, spec.threshold};
  const FloatView x = input_.x();
  selector_->Select({layer, expert, tokens, x, Rows(hidden_)}, active_);
  laps_.Lap(ForwardOp::kFfnPredictor);
  const bool skip_silent = selector_->mode() != FfnMode::kDense && CanSkipNeurons(ffn.activation);
  if (x.rows >= kPrefillTokens) {
    StreamPrompt(ffn, skip_silent, out);
  } else if (active_.all()) {
    StreamAll(ffn, skip_silent, out);
  } else {
    for (int64_t i = 0; i < x.rows; ++i) {
      ffn_counts_ +=
          streamed_->Run(compute_, ffn, x.row(i), active_.lists()[static_cast<size_t>(i)],
                         skip_silent, out.row(i));
    }
  }
  laps_.Lap(ForwardOp::kFfnGateUp);
}

// Many tokens together, range by range.
void Forward::StreamPrompt(const StreamedFfn& ffn, bool skip_silent, FloatView out) {
  const int64_t neurons = streamed_->store().source().neurons;
  streamed_->ForEachRange(compute_, ffn, [&](int64_t first, const FfnNeurons& rows) {
    const SparsePrefill::Range range = {
        .first = first, .is_first = first == 0, .is_last = first + rows.gate.rows == neurons};
    ffn_counts_ +=
        prefill_->RunRange(compute_, rows, input_, range, {active_.lists(), skip_silent}, out);
  });
}

// All neurons of few tokens, one after the other, range by range.
void Forward::StreamAll(const StreamedFfn& ffn, bool skip_silent, FloatView out) {
  const FloatView x = input_.x();
  streamed_->ForEachRange(compute_, ffn, [&](int64_t first, const FfnNeurons& rows) {
    for (int64_t i = 0; i < x.rows; ++i) {
      ffn_counts_ += neurons_->Activate(compute_, rows, x.row(i), std::nullopt, skip_silent);
      neurons_->AddDown(compute_, rows, out.row(i), first > 0);
    }
  });
}

}  // namespace hearth
