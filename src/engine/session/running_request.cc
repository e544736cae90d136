#include "engine/session/running_request.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace hearth {

RunningRequest::RunningRequest(Engine& engine, BatchRequest& request)
    : kv(engine.kv_pool()), history(request.prompt) {
  const auto prompt = std::ssize(history);
  outcome.prompt_tokens = prompt;
  most_tokens = prompt;
  if (!request.wants_embedding) {
    most_tokens += std::min(request.generate.max_tokens, engine.context() - prompt);
    generation.emplace(engine.model().tokenizer(), request.generate, engine.context());
  }
  asked = std::move(request);
}

RunningRequest::~RunningRequest() {
  if (restore) restore->Abandon();
}

std::span<const TokenId> RunningRequest::NextTokens() const {
  return std::span(history).subspan(static_cast<size_t>(kv.length()), static_cast<size_t>(rows));
}

CachedText RunningRequest::cached() const {
  return {std::span(history).first(static_cast<size_t>(kv.length())), asked.adapters.key()};
}

void RunningRequest::Pool(const TransformerPass& pass, PoolingKind pooling, int64_t first_row) {
  const FloatView states = pass.FinalStates();
  int64_t begin = first_row;
  int64_t end = first_row + rows;
  if (pooling == PoolingKind::kFirst && sums.empty()) end = begin + 1;
  if (pooling == PoolingKind::kFirst && !sums.empty()) return;
  if (pooling == PoolingKind::kLast) {
    if (left() > 0) return;
    begin = end - 1;
  }
  sums.resize(static_cast<size_t>(states.cols));
  for (int64_t row = begin; row < end; ++row) {
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] += static_cast<double>(states.row(row)[i]);
    }
  }
}

void RunningRequest::ScorePrompt(TransformerPass& pass, size_t vocabulary, int64_t first_row) {
  const int64_t first_token = kv.length() - rows;
  const int64_t count = std::min(rows, outcome.prompt_tokens - 1 - first_token);
  for (int64_t done = 0; done < count;) {
    const int64_t some = std::min<int64_t>(count - done, TransformerPass::kMaxLogitRows);
    const FloatView logits = pass.Logits(first_row + done, some);
    for (int64_t row = 0; row < some; ++row, ++done) {
      const auto next = static_cast<size_t>(first_token + done + 1);
      prompt_scores.push_back(ScoreToken({logits.row(row), vocabulary}, history[next],
                                         asked.generate.top_logprobs.value_or(0)));
    }
  }
}

void RunningRequest::EndEmbedding(PoolingKind pooling) {
  if (!std::all_of(sums.begin(), sums.end(), [](double sum) { return std::isfinite(sum); })) {
    throw Error(ErrorCode::kCorrupt, "model", "its embedding is not numbers");
  }
  const bool is_mean = pooling == PoolingKind::kMean;
  const double divisor = is_mean ? static_cast<double>(outcome.prompt_tokens) : 1.0;
  for (const double sum : sums) outcome.embedding.push_back(static_cast<float>(sum / divisor));
  outcome.finish_reason = FinishReason::kStop;
}

bool RunningRequest::Take(std::span<const float> logits) {
  const size_t before = generation->tokens().size();
  const bool goes_on = generation->Take(logits, history);
  if (!goes_on) {
    generation->Finish();
    outcome.finish_reason = generation->finish_reason();
    outcome.stop_text = generation->stop_text();
  }
  // An end token adds nothing, but it lets go what was held back.
  if (generation->tokens().size() > before || generation->HasMore()) TellText();
  return goes_on;
}

void RunningRequest::TellRest() {
  if (!generation) return;
  generation->Finish();
  if (generation->HasMore()) TellText();
}

void RunningRequest::TellText() {
  const std::string text = generation->TakeText();
  if (asked.on_token) asked.on_token(text, generation->TakeScores());
}

void RunningRequest::TellOutcome() noexcept {
  if (!asked.on_done) return;
  try {
    asked.on_done(outcome);
  } catch (...) {  // it was asked not to; the others go on
  }
}

}  // namespace hearth
