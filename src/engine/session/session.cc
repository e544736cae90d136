#include "engine/session/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

using Steady = std::chrono::steady_clock;

double MsSince(Steady::time_point start) {
  return std::chrono::duration<double, std::milli>(Steady::now() - start).count();
}

}  // namespace

double PhaseTime::TokensPerSecond() const {
  return ms > 0 ? static_cast<double>(tokens) * 1000 / ms : 0;
}

Session::Session(Engine& engine)
    : engine_(engine), kv_(engine.kv_pool()), adapters_(engine.adapters().default_mix()) {}

void Session::SetAdapters(AdapterMix adapters) {
  if (adapters.key() != adapters_.key()) kv_.Truncate(0);
  adapters_ = std::move(adapters);
}

void Session::Truncate(int64_t new_length) {
  history_.resize(static_cast<size_t>(
      std::clamp<int64_t>(new_length, 0, static_cast<int64_t>(history_.size()))));
  kv_.Truncate(std::min(kv_.length(), static_cast<int64_t>(history_.size())));
}

// Runs what of the history is not in the cache yet; at least its last token, whose logits are
// wanted (other sessions may have used the engine since). False when cancelled half-way.
bool Session::ComputePending(const GenerateOptions& options, ActivationSelector& selector) {
  kv_.Truncate(std::min(kv_.length(), static_cast<int64_t>(history_.size()) - 1));
  const int64_t limit = engine_.pass().limits().max_tokens;
  const int64_t before = kv_.length();
  const bool is_prompt = std::ssize(history_) - before > 1;
  while (static_cast<size_t>(kv_.length()) < history_.size()) {
    if (options.IsCancelled()) return false;
    const auto done = static_cast<size_t>(kv_.length());
    const auto count = static_cast<size_t>(
        PassShape::ChunkOf(static_cast<int64_t>(history_.size() - done), limit));
    const BatchSequence sequence{&kv_, std::span(history_).subspan(done, count), &adapters_};
    engine_.pass().Run({is_prompt ? PassKind::kPrefill : PassKind::kDecode, {&sequence, 1}},
                       selector);
    last_rows_ = static_cast<int64_t>(count);
    if (options.on_prefill && is_prompt) {
      options.on_prefill(kv_.length() - before, static_cast<int64_t>(history_.size()) - before);
    }
  }
  return true;
}

std::span<const float> Session::NextLogits() {
  const FloatView logits = engine_.pass().Logits(last_rows_ - 1, 1);
  return {logits.row(0), static_cast<size_t>(logits.cols)};
}

// Adds the prompt to the context and computes it; leaves the context as it was where that fails.
// False when cancelled.
bool Session::Prefill(std::span<const TokenId> prompt, const GenerateOptions& options,
                      PhaseTime& time) {
  const auto context = static_cast<size_t>(engine_.context());
  if (prompt.empty() && history_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, Field{"prompt"}, "it has no tokens");
  }
  if (history_.size() + prompt.size() > context) {
    throw Error(ErrorCode::kContextFull, Field{"prompt"}, "tokens, with what went before",
                "at most " + std::to_string(context) + " (the context)",
                std::to_string(history_.size() + prompt.size()));
  }
  history_.insert(history_.end(), prompt.begin(), prompt.end());
  time.tokens = std::max<int64_t>(1, static_cast<int64_t>(history_.size()) - kv_.length());
  const Steady::time_point start = Steady::now();
  try {
    const bool completed = ComputePending(options, engine_.prefill_selector());
    time.ms = MsSince(start);
    return completed;
  } catch (...) {
    Truncate(static_cast<int64_t>(history_.size() - prompt.size()));
    throw;
  }
}

GenerateResult Session::Generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                 const TextFn& on_text) {
  Generation generation(engine_.model().tokenizer(), options, engine_.context());
  GenerateResult result;
  // False where the caller has seen enough.
  const auto show = [&] {
    const std::string text = generation.TakeText();
    result.text += text;
    return text.empty() || !on_text || on_text(text);
  };
  bool running = Prefill(prompt, options, result.prefill);
  bool cancelled = !running;
  const StreamCounts before = engine_.stream_counts();
  const Steady::time_point start = Steady::now();
  while (running && std::ssize(generation.tokens()) < options.max_tokens) {
    const size_t kept = generation.tokens().size();
    running = generation.Take(NextLogits(), history_);
    if (generation.tokens().size() == kept) break;  // an end token
    cancelled = !show() || options.IsCancelled();
    running = running && !cancelled;
    if (!running) break;
    running = ComputePending(options, engine_.selector());
    cancelled = !running;
    ++result.decode.tokens;
  }
  result.decode.ms = MsSince(start);
  result.stream = engine_.stream_counts();
  result.stream -= before;
  generation.Finish();
  show();
  result.token_ids = generation.tokens();
  result.finish_reason = cancelled ? FinishReason::kCancelled : generation.finish_reason();
  return result;
}

}  // namespace hearth
