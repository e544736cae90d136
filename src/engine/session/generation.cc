#include "engine/session/generation.h"

#include <algorithm>
#include <utility>

namespace hearth {

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

Generation::Generation(const Tokenizer& tokenizer, const GenerateOptions& options, int64_t context)
    : tokenizer_(tokenizer),
      max_tokens_(options.max_tokens),
      context_(context),
      top_logprobs_(options.top_logprobs),
      sampler_(options.sampling),
      grammar_(options.grammar),
      visible_tokens_(options.visible_tokens),
      decoder_(tokenizer),
      stops_(options.stop) {}

bool Generation::Take(std::span<const float> logits, std::vector<TokenId>& history) {
  // Rows of the embedding beyond the vocabulary (padding) can never be chosen.
  logits = logits.first(tokenizer_.vocab_size());
  const TokenMask* const allowed = grammar_ ? &grammar_->AllowedTokens() : nullptr;
  if (allowed != nullptr && grammar_->IsFinished() && IsEmpty(*allowed)) {
    finish_reason_ = FinishReason::kStop;  // the model has no token that ends a text
    return false;
  }
  const TokenId token = sampler_.Sample(logits, history, tokens_.size(), allowed);
  // A model that writes BOS has ended its text and begins another.
  if (tokenizer_.IsEndOfGeneration(token) || token == tokenizer_.special().bos) {
    finish_reason_ = FinishReason::kStop;
    return false;
  }
  if (grammar_) grammar_->Advance(token);
  tokens_.push_back(token);
  const std::string text = TextOf(token);
  if (top_logprobs_) {
    scores_.push_back(
        {ScoreToken(logits, token, *top_logprobs_), decoded_, decoded_ + text.size()});
  }
  decoded_ += text.size();
  Show(stops_.Push(text));
  if (stops_.stopped()) finish_reason_ = FinishReason::kStop;
  if (std::ssize(history) >= context_) return false;  // no room to remember it
  history.push_back(token);
  return !stops_.stopped() && std::ssize(tokens_) < max_tokens_;
}

std::string Generation::TextOf(TokenId token) {
  const bool is_visible =
      std::find(visible_tokens_.begin(), visible_tokens_.end(), token) != visible_tokens_.end();
  return is_visible ? decoder_.Finish() + tokenizer_.VocabularyText(token) : decoder_.Push(token);
}

void Generation::Show(std::string text) {
  shown_ += text.size();
  text_ += text;
}

std::string Generation::TakeText() { return std::exchange(text_, {}); }

std::vector<ScoredToken> Generation::TakeScores() {
  std::vector<ScoredToken> taken;
  while (!scores_.empty() && IsShown(scores_.front())) {
    taken.push_back(std::move(scores_.front().token));
    scores_.pop_front();
  }
  return taken;
}

// At the end also a token of which a stop string took only the rest.
bool Generation::IsShown(const HeldScore& score) const {
  return score.end <= shown_ || (finished_ && score.begin < shown_);
}

bool Generation::HasMore() const {
  return !text_.empty() || (!scores_.empty() && IsShown(scores_.front()));
}

void Generation::Finish() {
  if (std::exchange(finished_, true)) return;
  const std::string rest = decoder_.Finish();
  decoded_ += rest.size();
  Show(stops_.Push(rest));
  Show(stops_.Finish());
  if (stops_.stopped()) finish_reason_ = FinishReason::kStop;
}

}  // namespace hearth
