// Many requests, one model: iteration-level scheduling.
//
// A step runs at most two passes: one token of every request that generates, together, and then
// some tokens of prompts. Requests join and leave between steps; where the first pass was the last
// of all that generated there is no second, so that who comes back at once shares one. States of a
// request:
//
//   waiting -> in its prompt -> generating -> done
//
// Waiting ones start in the order of arrival, as soon as the KV cache has room for all tokens that
// they may come to: what started can always finish. Sequences that ended stay in the KV cache
// (PrefixCache) until their pages are needed, and a prompt that begins like one of them, or like
// one that is running, shares its pages.
//
// With a SessionKeeper, sequences that give up their pages go to disk, and a prompt that a file has
// more of than memory starts when its pages are back; requests behind it go on meanwhile.
//
// A request alone gives the bits that a Session gives. So it does in company, but for prompts of
// packed models with fewer than eight tokens, and for mixtures of experts, which are the same
// within rounding: eight tokens of prompts or more are computed by another operator than fewer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/engine.h"
#include "engine/session/generation.h"
#include "engine/session/prefix_cache.h"
#include "engine/session/session_keeper.h"

namespace hearth {

// How a request ended.
struct BatchOutcome {
  FinishReason finish_reason = FinishReason::kLength;
  std::string stop_text;       // that the answer ended at; empty: at none
  std::optional<Error> error;  // why there is no result, or no more of it
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of them, which were not computed again
  std::vector<TokenId> generated;
  double wait_ms = 0;            // before the first pass
  double prefill_ms = 0;         // until the first token
  double decode_ms = 0;          // from there to the end
  std::vector<float> embedding;  // where it was asked for
};

struct BatchRequest {
  std::vector<TokenId> prompt;
  GenerateOptions generate;
  // What its tokens are computed with. Unset: no adapter, whatever the engine's default is.
  AdapterMix adapters;
  // Instead of generating: the prompt's last hidden states, after the output norm, pooled as the
  // model's spec says. Nothing of `generate` but `cancel` counts then.
  bool wants_embedding = false;
  // Where it is set it is called by Step before on_token: once, with the scores of the prompt's
  // tokens but the first, each as likely as what is before it makes it, with as many of the
  // likeliest as generate.top_logprobs says. All of the prompt is computed then, whatever is in the
  // cache.
  std::function<void(std::vector<ScoredToken> scores)> on_prompt;
  // Called by Step, in this order: generate.on_prefill after every pass over the prompt; on_token
  // once for every token, perhaps without text where text is held back, and once more at the end
  // where something still was; and then, once, on_done. Where one of the first two throws, the
  // request fails of that; on_done must not.
  std::function<void(std::string_view text, std::vector<ScoredToken> scores)> on_token;
  std::function<void(const BatchOutcome& outcome)> on_done;
};

// What happened so far.
struct BatchCounts {
  int64_t decode_passes = 0;
  int64_t prefill_passes = 0;
  int64_t decode_tokens = 0;  // rows of decode passes
  int64_t prompt_tokens = 0;  // computed
  int64_t reused_tokens = 0;  // of prompts, not computed again
  int64_t failed_passes = 0;
  double decode_seconds = 0;
  double prefill_seconds = 0;
  StreamCounts decode_stream;  // what decode passes read
};

struct BatchLimits {
  int64_t most_running = 8;
  size_t most_prefixes = 64;  // sequences that are kept when they have ended
};

// What is being caught: kOutOfBudget where memory was refused, kInternal where it is no Error.
Error CurrentError();

// One thread at a time, which has the engine to itself. The engine must outlive it.
class BatchScheduler {
 public:
  // sessions: may be null; must outlive the scheduler, and its engine outlive it. Throws
  // Error(kInvalidArgument) for limits that make no sense.
  BatchScheduler(Engine& engine, const BatchLimits& limits, SessionKeeper* sessions = nullptr);
  ~BatchScheduler();

  // Throws Error(kInvalidArgument) and Error(kContextFull) for a request that could never run: no
  // tokens, tokens the model does not have, more than its context, options outside their ranges;
  // Error(kUnsupported) for an embedding of a model that makes none.
  // Any thread.
  void Check(const BatchRequest& request) const;

  // Adds a request that Check lets pass to the end of the queue; one that there is no memory for
  // ends.
  void Add(BatchRequest request);

  // Drops who was cancelled and starts who can.
  void StartWaiting();
  // The same, and a pass of each kind where there is work. Never throws because of a request: those
  // of a pass that fails end with its error. Where it fails because the KV pages of one of them
  // could not be spilled or read, that one ends and the others go on.
  void Step();

  // Later decode passes are drawn into `map`, which must live as long; null ends that.
  void Watch(NeuronMap* map) { map_ = map; }

  // Ends all requests, as if each had been cancelled.
  void CancelAll();
  // The same with that error: the way on where a step throws because of what is no request's.
  void FailAll(const Error& error);
  // The sequences that are in the KV cache go to disk, the one used last first. Returns how many
  // were not there by then. Nothing runs or waits; nothing is in the cache afterwards.
  int64_t SaveSessions(std::chrono::steady_clock::time_point until);

  bool is_idle() const { return waiting_.empty() && running_.empty(); }
  // Whether a request generates or is in its prompt.
  bool has_begun() const;
  int64_t num_waiting() const { return std::ssize(waiting_); }
  int64_t num_running() const { return std::ssize(running_); }
  int64_t num_prefixes() const { return static_cast<int64_t>(prefixes_.size()); }
  // Pages that running requests hold or may still take.
  int64_t promised_pages() const;
  const BatchCounts& counts() const { return counts_; }
  // What the last pass failed of, where the model's file was to blame; empty after a pass that
  // worked.
  const std::string& fault() const { return fault_; }

 private:
  struct Request;
  using Requests = std::list<std::unique_ptr<Request>>;
  using Pass = std::vector<Request*>;

  void DropCancelled(Requests& requests, bool all = false);
  bool IsGenerating() const;
  void Decode();
  void Prefill();
  Pass ChoosePrompts();
  bool WaitsForPrefix(const Request& request, const Pass& pass) const;
  CachedText Sharable(const Request& request) const;
  const KvSequence* FindShared(const Request& request, int64_t* longest) const;
  void SharePrefix(Request& request);
  bool IsRestoring(Request& request);
  void StartRestore(Request& request);
  bool RunPass(PassKind kind, Pass& pass, ActivationSelector& selector);
  void MakeRoom(int64_t pages);
  void LetGo(std::optional<PrefixCache::Entry> entry);
  void SaveAhead();
  void TellPrefill(Request& request);
  void TakeTokens(const Pass& pass);
  void TakeToken(Request& request, std::span<const float> logits);
  static void ShowText(Request& request);
  void NoteBadResult(const Error& error);
  void AddToEmbedding(Request& request, int64_t first_row);
  void ScorePrompt(Request& request, int64_t first_row);
  void EndPrompt(Request& request);
  void End(Request& request);
  void Fail(Request& request, const Error& error);
  void RemoveEnded();
  int64_t FreePages() const;

  Engine& engine_;
  const BatchLimits limits_;
  SessionKeeper* const sessions_;  // may be null
  PrefixCache prefixes_;
  Requests waiting_;
  Requests running_;
  BatchCounts counts_;
  std::string fault_;
  NeuronMap* map_ = nullptr;  // null where nobody looks
};

}  // namespace hearth
