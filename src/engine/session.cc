#include "engine/session.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/stop_strings.h"

namespace hearth {
namespace {

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool IsCancelled(const GenerateOptions& options) {
  return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
}

// Collects generated tokens as text, up to a stop string.
class TextSink {
 public:
  TextSink(const Tokenizer& tokenizer, const std::vector<std::string>& stops, const TextFn& fn)
      : decoder_(tokenizer), stops_(stops), fn_(fn) {}

  void Push(TokenId id) { Emit(stops_.Push(decoder_.Push(id))); }
  void Finish() {
    Emit(stops_.Push(decoder_.Finish()));
    Emit(stops_.Finish());
  }
  bool stopped() const { return stops_.stopped(); }
  bool cancelled() const { return cancelled_; }
  std::string& text() { return text_; }

 private:
  void Emit(const std::string& text) {
    if (text.empty()) return;
    text_ += text;
    if (fn_ && !fn_(text)) cancelled_ = true;
  }

  StreamDecoder decoder_;
  StopMatcher stops_;
  const TextFn& fn_;
  std::string text_;
  bool cancelled_ = false;
};

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

double PhaseTime::TokensPerSecond() const {
  return ms > 0 ? static_cast<double>(tokens) * 1000 / ms : 0;
}

Session::Session(Engine& engine) : engine_(engine), kv_(engine.kv_pool()) {}

void Session::Truncate(int64_t new_length) {
  history_.resize(static_cast<size_t>(
      std::clamp<int64_t>(new_length, 0, static_cast<int64_t>(history_.size()))));
  kv_.Truncate(std::min(kv_.length(), static_cast<int64_t>(history_.size())));
}

// Runs what of the history is not in the cache yet; at least its last token, whose logits are
// wanted (other sessions may have used the engine since). False when cancelled half-way.
bool Session::ComputePending(const GenerateOptions& options, ActivationSelector& selector) {
  kv_.Truncate(std::min(kv_.length(), static_cast<int64_t>(history_.size()) - 1));
  const auto limit = static_cast<size_t>(engine_.forward().limits().max_tokens);
  while (static_cast<size_t>(kv_.length()) < history_.size()) {
    if (IsCancelled(options)) return false;
    const auto done = static_cast<size_t>(kv_.length());
    const size_t count = std::min(limit, history_.size() - done);
    const BatchSequence sequence{&kv_, std::span(history_).subspan(done, count)};
    engine_.forward().Run({&sequence, 1}, selector);
    last_rows_ = static_cast<int64_t>(count);
  }
  return true;
}

std::span<const float> Session::NextLogits() {
  const FloatView logits = engine_.forward().Logits(last_rows_ - 1, 1);
  // Rows of the embedding beyond the vocabulary (padding) can never be chosen.
  return {logits.row(0), engine_.model().tokenizer().vocab_size()};
}

// Adds the prompt to the context and computes it; leaves the context as it was where that fails.
// False when cancelled.
bool Session::Prefill(std::span<const TokenId> prompt, const GenerateOptions& options,
                      PhaseTime& time) {
  const auto context = static_cast<size_t>(engine_.context());
  if (prompt.empty() && history_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "prompt", "it has no tokens");
  }
  if (history_.size() + prompt.size() > context) {
    throw Error(ErrorCode::kContextFull, "prompt", "tokens, with what went before",
                "at most " + std::to_string(context) + " (the context)",
                std::to_string(history_.size() + prompt.size()));
  }
  history_.insert(history_.end(), prompt.begin(), prompt.end());
  time.tokens = std::max<int64_t>(1, static_cast<int64_t>(history_.size()) - kv_.length());
  const Clock::time_point start = Clock::now();
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
  const Tokenizer& tokenizer = engine_.model().tokenizer();
  Sampler sampler(options.sampling);
  TextSink sink(tokenizer, options.stop, on_text);
  GenerateResult result;
  bool running = Prefill(prompt, options, result.prefill);
  if (!running) result.finish_reason = FinishReason::kCancelled;
  const StreamCounts before = engine_.stream_counts();
  const Clock::time_point start = Clock::now();
  while (running && static_cast<int64_t>(result.token_ids.size()) < options.max_tokens) {
    const TokenId token = sampler.Sample(NextLogits(), history_, result.token_ids.size());
    // A model that writes BOS has ended its text and begins another.
    if (tokenizer.IsEndOfGeneration(token) || token == tokenizer.special().bos) {
      result.finish_reason = FinishReason::kStop;
      break;
    }
    result.token_ids.push_back(token);
    sink.Push(token);
    if (sink.stopped()) result.finish_reason = FinishReason::kStop;
    if (sink.cancelled() || IsCancelled(options)) result.finish_reason = FinishReason::kCancelled;
    if (std::ssize(history_) == engine_.context()) break;  // no room to remember it
    history_.push_back(token);
    if (result.finish_reason != FinishReason::kLength) break;
    if (static_cast<int64_t>(result.token_ids.size()) == options.max_tokens) break;
    running = ComputePending(options, engine_.selector());
    if (!running) result.finish_reason = FinishReason::kCancelled;
    ++result.decode.tokens;
  }
  result.decode.ms = MsSince(start);
  result.stream = engine_.stream_counts();
  result.stream -= before;
  sink.Finish();
  result.text = std::move(sink.text());
  return result;
}

}  // namespace hearth
