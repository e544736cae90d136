// A request of the BatchScheduler and how far it has come; for its sources alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/session/batch_scheduler.h"

namespace hearth {

struct BatchScheduler::Request {
  BatchRequest asked;
  KvSequence kv;
  std::vector<TokenId> history;          // the prompt and what was generated
  std::optional<Generation> generation;  // none of an embedding
  int64_t most_tokens = 0;               // that the KV cache may have to hold
  bool has_begun = false;                // a pass has computed some of it, or is about to
  bool is_generating = false;
  bool has_ended = false;
  int64_t rows = 0;          // in the pass
  std::vector<double> sums;  // of the last hidden states that are pooled
  std::vector<ScoredToken> prompt_scores;
  Stopwatch watch;  // since it was added, later since its phase began
  BatchOutcome outcome;
  bool has_looked = false;                // for saved pages
  std::shared_ptr<PageTransfer> restore;  // of saved pages, until it is taken

  ~Request() {
    if (restore) restore->Abandon();
  }
  // Takes the request when nothing can fail any more: what throws leaves it whole.
  Request(Engine& engine, BatchRequest& request) : kv(engine.kv_pool()), history(request.prompt) {
    const auto prompt = std::ssize(history);
    outcome.prompt_tokens = prompt;
    most_tokens = prompt;
    if (!request.wants_embedding) {
      most_tokens += std::min(request.generate.max_tokens, engine.context() - prompt);
      generation.emplace(engine.model().tokenizer(), request.generate, engine.context());
    }
    asked = std::move(request);
  }

  // Every token of the prompt must be computed.
  bool needs_whole_prompt() const { return asked.wants_embedding || asked.on_prompt; }
  int64_t left() const { return std::ssize(history) - kv.length(); }
  std::span<const TokenId> NextTokens() const {
    return std::span(history).subspan(static_cast<size_t>(kv.length()), static_cast<size_t>(rows));
  }
  // What it is to other requests: its tokens so far, and those whose keys and values it has.
  CachedText text() const { return {history, asked.adapters.key()}; }
  CachedText cached() const {
    return {std::span(history).first(static_cast<size_t>(kv.length())), asked.adapters.key()};
  }
  int64_t pages_to_come() const { return kv.PagesToAppend(most_tokens - kv.length()); }
};

}  // namespace hearth
