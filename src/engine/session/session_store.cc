#include "engine/session/session_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".session";
constexpr std::string_view kPartial = ".partial";
constexpr size_t kNameDigits = 16;
// Tokens of all files that are kept in memory to compare texts with.
constexpr int64_t kMostIndexedTokens = kMostSessionTokens;
constexpr mode_t kOthers = 0077;

SessionStore::Time TimeOf(const timespec& time) {
  return SessionStore::Time(std::chrono::duration_cast<SessionStore::Time::duration>(
      std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)));
}

// A file keeps when it was used last as its time of modification, for the next start.
void SetTimeOf(const std::string& path, SessionStore::Time time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds);
  const timespec both = {static_cast<time_t>(seconds.count()), static_cast<long>(rest.count())};
  const timespec times[] = {both, both};
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}

// "0123456789abcdef.session", and what a writer that died left of one.
bool IsSessionName(const std::string& name) {
  return name.size() == kNameDigits + kExtension.size() && name.ends_with(kExtension) &&
         name.find_first_not_of("0123456789abcdef") == kNameDigits;
}
bool IsPartialName(const std::string& name) {
  return name.ends_with(kPartial) && name.find_first_not_of("0123456789abcdef") == kNameDigits &&
         name.substr(kNameDigits).starts_with(kExtension);
}

bool IsPrefixOf(const CachedText& beginning, const CachedText& text) {
  return CommonPrefix(beginning, text) == beginning.length();
}

std::string SystemText() { return std::strerror(errno); }

}  // namespace

SessionStore::SessionStore(SessionStoreOptions options, SessionIdentity identity)
    : options_(std::move(options)), identity_(std::move(identity)) {
  OpenFolder();
  Lock();
  try {
    FindFiles();
  } catch (const fs::filesystem_error& error) {
    close(lock_);
    throw Error(ErrorCode::kIo, options_.folder, "cannot list it: " + error.code().message());
  } catch (...) {
    close(lock_);
    throw;
  }
}

SessionStore::~SessionStore() { close(lock_); }

void SessionStore::OpenFolder() {
  const std::string& folder = options_.folder;
  std::error_code failed;
  fs::create_directories(fs::path(folder).parent_path(), failed);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw Error(ErrorCode::kIo, folder, "cannot make the folder: " + SystemText());
  }
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0) throw Error(ErrorCode::kIo, folder, SystemText());
  if (!S_ISDIR(info.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, folder, "it is no folder");
  }
  if (info.st_uid != geteuid() || (info.st_mode & kOthers) != 0) {
    throw Error(ErrorCode::kInvalidArgument, folder,
                "others may look into it, and sessions hold what users wrote: take another folder, "
                "or make it yours alone with chmod 700");
  }
}

void SessionStore::Lock() {
  const std::string path = options_.folder + "/lock";
  lock_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) throw Error(ErrorCode::kIo, path, "cannot open: " + SystemText());
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  close(lock_);
  if (reason == EWOULDBLOCK) {
    throw Error(ErrorCode::kInvalidArgument, options_.folder,
                "another server keeps its sessions there: give each a folder of its own");
  }
  throw Error(ErrorCode::kIo, path, fmt::format("cannot lock: {}", std::strerror(reason)));
}

void SessionStore::FindFiles() {
  std::vector<std::string> found;
  for (const fs::directory_entry& file : fs::directory_iterator(options_.folder)) {
    const std::string name = file.path().filename();
    if (file.symlink_status().type() != fs::file_type::regular) continue;
    std::error_code ignored;
    if (IsPartialName(name)) fs::remove(file.path(), ignored);
    if (IsSessionName(name)) found.push_back(file.path());
  }
  int64_t foreign = 0;
  for (const std::string& path : found) foreign += TakeFile(path) ? 0 : 1;
  if (foreign > 0) {
    Warn(fmt::format("{}: {} sessions of other models or settings are left alone", options_.folder,
                     foreign));
  }
}

// False for a file of another model.
bool SessionStore::TakeFile(const std::string& path) {
  try {
    const auto file = OpenFileReader(path);
    SessionHead head = ReadSessionHead(*file, identity_);
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) throw Error(ErrorCode::kIo, path, SystemText());
    const std::lock_guard lock(mutex_);
    Insert({path, std::move(head.tokens), head.adapters, file->size_bytes(), TimeOf(info.st_mtim)});
    MakeRoom(std::span<const TokenId>(), 0, Time::max());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) return false;
    const bool is_damaged = error.code() == ErrorCode::kCorrupt;
    if (is_damaged) unlink(path.c_str());
    Warn(fmt::format("{}: it is {}", error.what(), is_damaged ? "removed" : "ignored"));
    const std::lock_guard lock(mutex_);
    ++counts_.failed;
  }
  return true;
}

void SessionStore::Warn(const std::string& sentence) const {
  if (options_.warn) options_.warn(sentence);
}

bool SessionStore::Covers(const CachedText& text) const {
  const std::lock_guard lock(mutex_);
  int64_t common = 0;
  FindLongest(text, &common);
  return common == text.length();
}

int64_t SessionStore::LongestCommon(const CachedText& text) const {
  const std::lock_guard lock(mutex_);
  int64_t common = 0;
  FindLongest(text, &common);
  return common;
}

const SessionStore::Entry* SessionStore::FindLongest(const CachedText& text,
                                                     int64_t* common) const {
  const Entry* best = nullptr;
  *common = 0;
  for (const Entry& entry : entries_) {
    if (entry.is_unreadable) continue;
    const int64_t here = CommonPrefix(entry.text(), text);
    if (here <= *common) continue;
    *common = here;
    best = &entry;
  }
  return best;
}

void SessionStore::Forget(Entries::iterator entry, bool removes_file) {
  if (removes_file) unlink(entry->path.c_str());
  indexed_tokens_ -= std::ssize(entry->tokens);
  counts_.bytes -= entry->bytes;
  --counts_.files;
  entries_.erase(entry);
}

SessionStore::Entries::iterator SessionStore::Find(const std::string& path) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& one) { return one.path == path; });
}

void SessionStore::Forget(const std::string& path, bool removes_file) {
  const auto entry = Find(path);
  if (entry != entries_.end()) Forget(entry, removes_file);
}

bool SessionStore::MakeRoom(const CachedText& text, uint64_t bytes, Time last_used) {
  uint64_t all_bytes = counts_.bytes + bytes;
  int64_t all_tokens = indexed_tokens_ + text.length();
  const auto is_full = [&] {
    return all_bytes > options_.limit_bytes || all_tokens > kMostIndexedTokens;
  };
  std::vector<Entries::iterator> leaving;
  const auto leave = [&](Entries::iterator entry) {
    all_bytes -= entry->bytes;
    all_tokens -= std::ssize(entry->tokens);
    leaving.push_back(entry);
  };
  for (auto entry = entries_.begin(); is_full() && entry != entries_.end(); ++entry) {
    if (IsPrefixOf(entry->text(), text)) leave(entry);
  }
  const size_t continued = leaving.size();
  for (auto entry = entries_.end(); is_full() && entry != entries_.begin();) {
    --entry;
    if (entry->last_used > last_used) return false;
    if (!IsPrefixOf(entry->text(), text)) leave(entry);
  }
  if (is_full()) return false;
  for (size_t i = 0; i < leaving.size(); ++i) {
    if (i >= continued) {
      ++counts_.evicted;
      counts_.evicted_bytes += leaving[i]->bytes;
    }
    Forget(leaving[i], true);
  }
  return true;
}

void SessionStore::Insert(Entry entry) {
  indexed_tokens_ += std::ssize(entry.tokens);
  counts_.bytes += entry.bytes;
  ++counts_.files;
  const auto place = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& other) {
    return other.last_used <= entry.last_used;
  });
  entries_.insert(place, std::move(entry));
}

bool SessionStore::Save(const CachedText& text, const CopyPageFn& copy, Time last_used) noexcept {
  try {
    bool is_whole = false;
    Write(text, copy, last_used, &is_whole);
    return is_whole;
  } catch (const std::exception& error) {
    bool is_known = false;
    {
      const std::lock_guard lock(mutex_);
      ++counts_.failed;
      is_known = std::exchange(is_failing_, true);
    }
    // A disk that is full would say so with every session.
    if (!is_known) {
      Warn(fmt::format("{}: the session is not saved; further failures are only counted",
                       error.what()));
    }
    return false;
  }
}

bool SessionStore::FitsAtAll(uint64_t bytes) {
  if (bytes <= options_.limit_bytes) return true;
  bool is_known = false;
  {
    const std::lock_guard lock(mutex_);
    ++counts_.failed;
    is_known = std::exchange(said_too_large_, true);
  }
  if (!is_known) {
    Warn(fmt::format("{}: a session of {} is not saved: the limit of all is {}", options_.folder,
                     FormatSize(bytes), FormatSize(options_.limit_bytes)));
  }
  return false;
}

void SessionStore::Write(const CachedText& text, const CopyPageFn& copy, Time last_used,
                         bool* is_whole) {
  const uint64_t bytes = SessionFileBytes(identity_, text);
  if (!FitsAtAll(bytes)) return;
  {
    const std::lock_guard lock(mutex_);
    if (!MakeRoom(text, bytes, last_used)) return;
  }
  const std::string path =
      fmt::format("{}/{:016x}{}", options_.folder, SessionHashOf(identity_, text), kExtension);
  AtomicFile file(path, 0600);
  file.KeepOutOfPageCache();
  if (!WriteSession(file, identity_, text, copy)) return;
  file.Finish();
  SetTimeOf(path, last_used);
  *is_whole = true;
  const std::lock_guard lock(mutex_);
  is_failing_ = false;
  Forget(path, false);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (IsPrefixOf(entry->text(), text)) Forget(entry, true);
    entry = next;
  }
  Insert({path, {text.tokens.begin(), text.tokens.end()}, text.adapters, bytes, last_used});
  ++counts_.saved;
  counts_.saved_bytes += bytes;
}

int64_t SessionStore::Restore(const CachedText& text, const TakePageFn& take) noexcept {
  std::string path;
  int64_t common = 0;
  try {
    {
      const std::lock_guard lock(mutex_);
      const Entry* found = FindLongest(text, &common);
      if (found == nullptr) return 0;
      path = found->path;
    }
    const auto file = OpenFileReader(path);
    const SessionHead head = ReadSessionHead(*file, identity_);
    if (head.adapters != text.adapters) {
      throw Error(ErrorCode::kCorrupt, path,
                  "saved session: it was computed with other adapters or weights of them");
    }
    if (CommonPrefix({head.tokens, head.adapters}, text) < common) {
      throw Error(ErrorCode::kCorrupt, path, "saved session: it is not the one that was there");
    }
    const int64_t pages = KvLayout::PagesFor(common);
    if (!ReadSessionPages(*file, identity_, head, pages, take)) return 0;
    const Time now = Time::clock::now();
    SetTimeOf(path, now);
    const std::lock_guard lock(mutex_);
    const auto entry = Find(path);
    if (entry != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, entry);
      entry->last_used = now;
    }
    ++counts_.restored;
    counts_.restored_tokens += common;
    counts_.restored_bytes += static_cast<uint64_t>(pages) * identity_.layout.page_bytes();
    return common;
  } catch (const Error& error) {
    // Gone meanwhile: somebody needed the room.
    const bool is_gone = error.code() == ErrorCode::kNotFound;
    const bool is_damaged = error.code() == ErrorCode::kCorrupt;
    if (!is_gone) {
      Warn(fmt::format("{}: it is {}", error.what(), is_damaged ? "removed" : "ignored"));
    }
    const std::lock_guard lock(mutex_);
    if (!is_gone) ++counts_.failed;
    const auto entry = Find(path);
    if (entry == entries_.end()) return 0;
    if (is_gone || is_damaged) {
      Forget(entry, is_damaged);
    } else {
      entry->is_unreadable = true;
    }
  } catch (const std::exception& error) {
    Warn(fmt::format("{}: {}", options_.folder, error.what()));
  }
  return 0;
}

SessionCounts SessionStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace hearth
