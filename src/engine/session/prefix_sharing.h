// Where prompts begin alike: what requests share, what is kept of those that ended for those that
// will come, and which pages of the KV cache are promised to whom.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/session/prefix_cache.h"
#include "engine/session/running_request.h"
#include "engine/session/session_keeper.h"

namespace hearth {

// On the scheduler's thread. The engine, the running requests and the keeper must outlive it.
class PrefixSharing {
 public:
  // running: in the order of arrival. most_prefixes: sequences that are kept when they have ended.
  // sessions: where they go when their pages are needed; null: nowhere.
  PrefixSharing(Engine& engine, const RunningRequests& running, size_t most_prefixes,
                SessionKeeper* sessions)
      : engine_(engine), running_(running), sessions_(sessions), kept_(most_prefixes) {}

  // Sequences that ended and are kept.
  int64_t size() const { return static_cast<int64_t>(kept_.size()); }
  // Pages that belong to running requests, or will if they generate all they may.
  int64_t promised_pages() const;
  // Pages that nobody is promised.
  int64_t unpromised_pages() const;

  // Takes pages from sequences that have ended, until so many are free or there are none to take:
  // those that need no disk first. Waits for a disk for a short while only.
  void MakeRoom(int64_t pages);

  // Whether a prompt that is about to be computed begins like this one: it will be there to share.
  // pass: whose next tokens are chosen.
  bool WaitsForPrefix(const RunningRequest& request, const RequestsOfPass& pass) const;
  // Whether saved pages of a prompt that has not begun are on their way.
  bool IsRestoring(RunningRequest& request);
  // Lets a prompt that has not begun start from the longest beginning that is in the KV cache, or
  // was saved; outcome.reused_tokens says how long it is.
  void Share(RunningRequest& request);

  // Keeps what was computed of a request that has ended. Its sequence moves.
  void Keep(RunningRequest& request);
  // Saves what will be let go next while there is time, so that no pass waits for its pages.
  void SaveAhead();
  // All that is kept goes to disk, the one used last first. Returns how many were not there by
  // then.
  int64_t SaveAll(std::chrono::steady_clock::time_point until);

 private:
  void LetGo(std::optional<PrefixCache::Entry> entry);
  CachedText Sharable(const RunningRequest& request) const;
  const KvSequence* FindShared(const RunningRequest& request, int64_t* longest) const;
  void StartRestore(RunningRequest& request);

  Engine& engine_;
  const RunningRequests& running_;
  SessionKeeper* const sessions_;  // may be null
  PrefixCache kept_;
};

}  // namespace hearth
