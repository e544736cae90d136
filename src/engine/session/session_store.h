// A folder of saved sessions (docs/formats/session.md): which there are, which go first when they
// are too many bytes. Reads and writes files, knows no pages of memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/session/cached_text.h"
#include "engine/session/session_file.h"

namespace hearth {

struct SessionStoreOptions {
  std::string folder;
  uint64_t limit_bytes = uint64_t{4} << 30;
  // Told what a user should know, one sentence each, from any thread; may be null.
  std::function<void(const std::string& sentence)> warn;
};

struct SessionCounts {
  int64_t files = 0;  // now
  uint64_t bytes = 0;
  int64_t saved = 0;  // so far
  uint64_t saved_bytes = 0;
  int64_t restored = 0;
  uint64_t restored_bytes = 0;
  int64_t restored_tokens = 0;
  int64_t evicted = 0;  // for want of room
  uint64_t evicted_bytes = 0;
  int64_t failed = 0;  // that could not be written, or were damaged
};

// Only the owner may read the folder, and one process uses it at a time. Thread-safe; files are
// read and written without the lock.
class SessionStore {
 public:
  using Time = std::chrono::system_clock::time_point;

  // Makes the folder where there is none, takes its lock, and looks at the files that are there:
  // those of other models are left alone, what is damaged or half-written is removed, with a
  // warning. Throws Error(kInvalidArgument) where others may read the folder or another process
  // uses it, Error(kIo).
  SessionStore(SessionStoreOptions options, SessionIdentity identity);
  ~SessionStore();
  SessionStore(const SessionStore&) = delete;
  SessionStore& operator=(const SessionStore&) = delete;

  const SessionIdentity& identity() const { return identity_; }

  // Whether a file begins with all of these tokens.
  bool Covers(const CachedText& text) const;
  // Tokens of `text` that some file begins with; 0 for none.
  int64_t LongestCommon(const CachedText& text) const;

  // Writes a session; what it continues is removed, and where there is no room what was used before
  // it. True where it is there now. False where `copy` ended it, where only sessions that were used
  // later fill the folder, and where it is larger than the limit or could not be written, which is
  // a warning; service goes on.
  bool Save(const CachedText& text, const CopyPageFn& copy,
            Time last_used = Time::clock::now()) noexcept;

  // Reads the pages of the first LongestCommon(text) tokens. The number of tokens; 0 where `take`
  // ended it, or where the file is gone or damaged, which is a warning.
  int64_t Restore(const CachedText& text, const TakePageFn& take) noexcept;

  SessionCounts counts() const;
  void Warn(const std::string& sentence) const;

 private:
  struct Entry {
    std::string path;
    std::vector<TokenId> tokens;
    uint64_t adapters = 0;
    uint64_t bytes = 0;
    Time last_used;  // the file's time of modification
    // It could not be read: its file still takes room, but nobody looks into it again.
    bool is_unreadable = false;

    CachedText text() const { return {tokens, adapters}; }
  };
  using Entries = std::list<Entry>;

  void OpenFolder();
  void Lock();
  void FindFiles();
  bool TakeFile(const std::string& path);
  // All of these with mutex_ held.
  const Entry* FindLongest(const CachedText& text, int64_t* common) const;
  // Makes room for a session of so many bytes: what it continues goes first, then what was used
  // before it. False, and nothing is removed, where that is not enough.
  bool MakeRoom(const CachedText& text, uint64_t bytes, Time last_used);
  void Insert(Entry entry);
  Entries::iterator Find(const std::string& path);
  void Forget(Entries::iterator entry, bool removes_file);
  void Forget(const std::string& path, bool removes_file);

  bool FitsAtAll(uint64_t bytes);
  void Write(const CachedText& text, const CopyPageFn& copy, Time last_used, bool* is_whole);

  const SessionStoreOptions options_;
  const SessionIdentity identity_;
  int lock_ = -1;
  mutable std::mutex mutex_;
  Entries entries_;              // guarded by mutex_; the one used last in front
  int64_t indexed_tokens_ = 0;   // of entries_; guarded by mutex_
  SessionCounts counts_;         // guarded by mutex_
  bool is_failing_ = false;      // the last write failed, and it was said; guarded by mutex_
  bool said_too_large_ = false;  // that a session was; guarded by mutex_
};

}  // namespace hearth
