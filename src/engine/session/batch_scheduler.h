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
// (PrefixSharing) until their pages are needed, and a prompt that begins like one of them, or like
// one that is running, shares its pages.
//
// With a SessionKeeper, sequences that give up their pages go to disk, and a prompt that a file has
// more of than memory starts when its pages are back; requests after it go on meanwhile.
//
// A request alone gives the bits that a Session gives. So it does in company, but for prompts of
// packed models with fewer than eight tokens, and for mixtures of experts, which are the same
// within rounding: eight tokens of prompts or more are computed by another operator than fewer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/session/batch_request.h"
#include "engine/session/prefix_sharing.h"
#include "engine/session/session_keeper.h"

namespace hearth {

// What is being caught: kOutOfBudget where memory was refused, kInternal where it is no Error.
Error CurrentError();

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

// One thread at a time, which has the engine to itself. The engine must outlive it.
class BatchScheduler {
 public:
  // sessions: may be null; must outlive the scheduler, and its engine outlive it. Throws
  // Error(kInvalidArgument) for limits that make no sense.
  BatchScheduler(Engine& engine, const BatchLimits& limits, SessionKeeper* sessions = nullptr);
  BatchScheduler(const BatchScheduler&) = delete;
  BatchScheduler& operator=(const BatchScheduler&) = delete;

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
  // What is in the KV cache, and what of it is promised.
  const PrefixSharing& prefixes() const { return prefixes_; }
  const BatchCounts& counts() const { return counts_; }
  // What the last pass failed of, where the model's file or a device was to blame; empty after a
  // pass that worked.
  const std::string& fault() const { return fault_; }

 private:
  void DropCancelled(RunningRequests& requests, bool all = false);
  void Decode();
  void Prefill();
  RequestsOfPass ChoosePrompts();
  bool RunPass(PassKind kind, RequestsOfPass& pass, ActivationSelector& selector);
  void TakeTokens(const RequestsOfPass& pass);
  void TakeToken(RunningRequest& request, std::span<const float> logits);
  void EndPrompt(RunningRequest& request);
  void NoteBadResult(const Error& error);
  void End(RunningRequest& request);
  void Fail(RunningRequest& request, const Error& error);
  void RemoveEnded();

  Engine& engine_;
  const BatchLimits limits_;
  SessionKeeper* const sessions_;  // may be null
  RunningRequests waiting_;
  RunningRequests running_;
  PrefixSharing prefixes_;
  BatchCounts counts_;
  std::string fault_;
  NeuronMap* map_ = nullptr;  // null where nobody looks
};

}  // namespace hearth
