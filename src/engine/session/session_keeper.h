// Saves and restores KV pages on threads of its own while the engine goes on.
//
// A transfer holds pages of one sequence while a thread copies them to or from a file, piece by
// piece. States:
//
//   under way -> done      the engine takes the sequence back
//             -> abandoned the engine needed the pages, or nobody wants them: they are free at once
//
// The threads copy pieces with the transfer's lock held and do their reads and writes without it,
// so that a slow or stuck disk never keeps the engine from its memory.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/session/session_root.h"
#include "engine/session/session_store.h"
#include "kv/kv_cache.h"

namespace hearth {

// Pages on their way. Made, abandoned and taken by the engine's thread, which alone may touch the
// pool; Copy functions and Finish are the other thread's.
class PageTransfer {
 public:
  explicit PageTransfer(KvSequence kv);
  ~PageTransfer() = default;  // after Abandon or Take

  // The pages are free: the other thread will not touch them again.
  void Abandon();
  bool is_done() const;
  const KvSequence& kv() const { return kv_; }
  // Of a transfer that is done: the sequence with the tokens that arrived.
  KvSequence Take();

  // False where it is abandoned, or pages that lie on flash cannot be read or written.
  bool CopyOut(int64_t page, uint64_t offset, std::span<std::byte> out);
  bool CopyIn(int64_t page, uint64_t offset, std::span<const std::byte> bytes);
  bool is_abandoned() const;
  void Finish(int64_t tokens);

 private:
  mutable std::mutex mutex_;
  KvSequence kv_;
  const std::vector<KvPageId> pages_;  // of kv_, which keeps them until it is abandoned
  bool is_abandoned_ = false;          // guarded by mutex_
  bool is_done_ = false;               // guarded by mutex_
  int64_t tokens_ = 0;                 // guarded by mutex_
};

// A thread that does jobs in order. The destructor drops those that have not begun.
class JobThread {
 public:
  JobThread();
  ~JobThread();
  void Post(std::function<void()> job);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::thread thread_;                      // last: it uses all of the above
};

// Used by the engine's thread but for counts().
class SessionKeeper {
 public:
  using Clock = std::chrono::steady_clock;
  // Memory that it may take: the tokens of all files, and what is on its way to and from them.
  static constexpr uint64_t kMemoryBytes = uint64_t{8} << 20;

  explicit SessionKeeper(std::unique_ptr<SessionStore> store);
  // Abandons what is under way.
  ~SessionKeeper();

  bool IsSaved(const CachedText& text) const { return store_->Covers(text); }
  // Begins to save; the sequence keeps its pages meanwhile. last_used: see SessionStore::Save.
  void Save(const CachedText& text, KvSequence kv,
            SessionStore::Time last_used = SessionStore::Time::clock::now());
  bool is_saving() const { return !saves_.empty(); }
  // A sequence that is being saved and begins with more than *common tokens of `text`; null where
  // there is none. Sets *common. Valid until the next call that is not const.
  const KvSequence* FindSaving(const CachedText& text, int64_t* common) const;
  // Gives back the pages of saves that are done.
  void Collect();
  // Waits for the oldest save; one that takes longer is abandoned, with a warning. False where
  // there is none.
  bool WaitForSave(Clock::time_point until);
  // The same for all. The number of those that were abandoned.
  int64_t WaitForSaves(Clock::time_point until);

  int64_t LongestCommon(const CachedText& text) const { return store_->LongestCommon(text); }
  // Begins to read the first kv.length() tokens of `text` into kv. The caller takes or abandons it.
  std::shared_ptr<PageTransfer> Restore(const CachedText& text, KvSequence kv);
  // Waits until a restore or a save ends, at most so long.
  void WaitForAny(std::chrono::milliseconds at_most);

  SessionCounts counts() const { return store_->counts(); }
  void Warn(const std::string& sentence) const { store_->Warn(sentence); }

 private:
  struct Saving {
    std::shared_ptr<PageTransfer> transfer;
    std::shared_ptr<const std::vector<TokenId>> tokens;
    uint64_t adapters = 0;
  };

  void TellEnd();

  std::unique_ptr<SessionStore> store_;
  std::deque<Saving> saves_;  // the engine's
  std::mutex mutex_;
  std::condition_variable ended_;
  uint64_t num_ended_ = 0;  // transfers; guarded by mutex_
  uint64_t num_seen_ = 0;   // of them, by WaitForAny
  JobThread saver_;
  JobThread restorer_;
};

// For what this engine computes. Throws as SessionStore does.
std::unique_ptr<SessionKeeper> OpenSessions(Engine& engine, SessionStoreOptions options);
// The same in the model's own folder below a root, within what the root's limit leaves to it.
// model: its name. Of the options `warn` counts.
std::unique_ptr<SessionKeeper> OpenSessionsBelow(Engine& engine, const SessionRoot& root,
                                                 const std::string& model,
                                                 SessionStoreOptions options);

}  // namespace hearth
