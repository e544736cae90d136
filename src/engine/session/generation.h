// One answer in the making: which token follows, what text it adds, and when the answer ends. What
// a Session and the BatchScheduler do with the logits of a step, so that both give the same.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/session/sampler.h"
#include "engine/session/stop_strings.h"
#include "engine/session/token_scores.h"
#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

enum class FinishReason { kStop, kLength, kCancelled };
const char* FinishReasonName(FinishReason reason);  // "stop", "length", "cancelled"

struct GenerateOptions {
  int64_t max_tokens = 256;  // at most; the context may end earlier
  SamplingOptions sampling;
  std::vector<std::string> stop;
  // Only tokens that it allows are chosen, and it is told of each. Begins where the answer does;
  // may be null.
  std::shared_ptr<GrammarMatcher> grammar;
  // Control tokens that are written out in the text: those that mark calls of tools.
  std::vector<TokenId> visible_tokens;
  // With every token its log probability, and those of so many of the likeliest. Nothing: none.
  std::optional<int> top_logprobs;
  // Looked at between tokens and, in a prompt, between layers; true stops. May be null.
  const std::atomic<bool>* cancel = nullptr;
  // Told between the passes over a long prompt how many of its tokens are computed; may be empty.
  std::function<void(int64_t done, int64_t total)> on_prefill = {};

  bool IsCancelled() const { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }
};

// One thread at a time. The tokenizer must outlive it.
class Generation {
 public:
  // Throws Error(kInvalidArgument) for sampling options outside their ranges.
  Generation(const Tokenizer& tokenizer, const GenerateOptions& options, int64_t context);

  // Chooses the token after `history` from its logits (of all rows of the output matrix) and adds
  // it to the history where the context has room. True where the logits after it are wanted next.
  // Throws what Sampler::Sample throws.
  bool Take(std::span<const float> logits, std::vector<TokenId>& history);

  // Text that can be shown since the last call: whole characters that no stop string takes back.
  std::string TakeText();
  // Scores of the tokens of that text, where they were asked for.
  std::vector<ScoredToken> TakeScores();
  // Whether one of the two has something.
  bool HasMore() const;
  // No more tokens will come: what was held back can be shown.
  void Finish();

  // What was generated, those of a stop text too, but no end token.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  // kStop or kLength: an end token or a stop string, or no room.
  FinishReason finish_reason() const { return finish_reason_; }
  // The stop string that the text ended at; empty where there was none.
  const std::string& stop_text() const { return stops_.stop_text(); }

 private:
  struct HeldScore {
    ScoredToken token;
    size_t begin = 0;  // in the text, stop strings included
    size_t end = 0;
  };

  std::string TextOf(TokenId token);
  bool IsShown(const HeldScore& score) const;
  void Show(std::string text);

  const Tokenizer& tokenizer_;
  const int64_t max_tokens_;
  const int64_t context_;
  const std::optional<int> top_logprobs_;
  Sampler sampler_;
  const std::shared_ptr<GrammarMatcher> grammar_;
  const std::vector<TokenId> visible_tokens_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  std::vector<TokenId> tokens_;
  FinishReason finish_reason_ = FinishReason::kLength;
  std::string text_;    // to be taken
  size_t decoded_ = 0;  // bytes of text, so far
  size_t shown_ = 0;    // of them could be shown
  bool finished_ = false;
  std::deque<HeldScore> scores_;
};

}  // namespace hearth
