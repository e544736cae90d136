// A request that waits or runs, and how far it has come; of the BatchScheduler and what it is made
// of.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/stopwatch.h"
#include "engine/engine.h"
#include "engine/session/batch_request.h"
#include "engine/session/cached_text.h"
#include "engine/session/generation.h"
#include "engine/session/session_keeper.h"

namespace hearth {

// On the scheduler's thread.
struct RunningRequest {
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

  // Takes the request when nothing can fail any more: what throws leaves it whole.
  RunningRequest(Engine& engine, BatchRequest& request);
  ~RunningRequest();

  // Every token of the prompt must be computed.
  bool needs_whole_prompt() const { return asked.wants_embedding || asked.on_prompt; }
  int64_t left() const { return std::ssize(history) - kv.length(); }
  std::span<const TokenId> NextTokens() const;
  // What it is to other requests: its tokens so far, and those whose keys and values it has.
  CachedText text() const { return {history, asked.adapters.key()}; }
  CachedText cached() const;
  int64_t pages_to_come() const { return kv.PagesToAppend(most_tokens - kv.length()); }

  // Where the rows of the last pass, which begin with `first_row`, are of its prompt: adds their
  // last hidden states to what an embedding pools, or scores the tokens that follow them. The
  // second may throw.
  void Pool(const TransformerPass& pass, PoolingKind pooling, int64_t first_row);
  void ScorePrompt(TransformerPass& pass, size_t vocabulary, int64_t first_row);
  // The prompt is computed: the embedding joins the outcome. Throws Error(kCorrupt) where it is not
  // numbers.
  void EndEmbedding(PoolingKind pooling);

  // Chooses the next token and tells it. Returns whether another one follows; throws what choosing
  // and telling throw.
  bool Take(std::span<const float> logits);
  // Tells what was held back, where a request ends before its time.
  void TellRest();
  // Never throws.
  void TellOutcome() noexcept;

 private:
  void TellText();
};

using RunningRequests = std::list<std::unique_ptr<RunningRequest>>;
// Those of a pass, in the order of their rows.
using RequestsOfPass = std::vector<RunningRequest*>;

}  // namespace hearth
