#include "hub/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"

namespace hearth::hub {
namespace {

constexpr std::chrono::milliseconds kLockInterval{50};

FileHandle OpenPartial(const std::string& path, int flags) {
  return FileHandle(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0666));
}

}  // namespace

PartialFile::PartialFile(std::string partial_path, std::string final_path,
                         const std::function<void()>& on_wait, const std::atomic<bool>* cancel)
    : partial_path_(std::move(partial_path)), final_path_(std::move(final_path)) {
  bool has_waited = false;
  for (;;) {
    handle_ = OpenPartial(partial_path_, O_RDWR | O_CREAT | O_APPEND);
    if (handle_.get() < 0) Fail("create", errno);
    while (flock(handle_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) Fail("lock", errno);
      if (!std::exchange(has_waited, true)) on_wait();
      std::this_thread::sleep_for(kLockInterval);
      if (cancel != nullptr && *cancel) throw Error(ErrorCode::kCancelled, "", "interrupted");
    }
    // The process that had it may have renamed or removed what was opened.
    if (HoldsItsName()) break;
  }
  struct stat info = {};
  if (fstat(handle_.get(), &info) != 0) Fail("read", errno);
  bytes_ = static_cast<uint64_t>(info.st_size);
}

bool PartialFile::HoldsItsName() const {
  struct stat opened = {};
  struct stat named = {};
  return fstat(handle_.get(), &opened) == 0 && lstat(partial_path_.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

void PartialFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(handle_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) Fail("write", errno);
    bytes_ += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
}

void PartialFile::Clear() {
  if (ftruncate(handle_.get(), 0) != 0) Fail("write", errno);
  bytes_ = 0;
}

void PartialFile::Finish() {
  // EINVAL: a file that is not on a disk.
  if (fdatasync(handle_.get()) != 0 && errno != EINVAL) Fail("write", errno);
  if (std::rename(partial_path_.c_str(), final_path_.c_str()) != 0) Fail("be renamed", errno);
}

void PartialFile::Remove() { std::remove(partial_path_.c_str()); }

bool PartialFile::TryRemove(const std::string& partial_path) {
  const FileHandle handle = OpenPartial(partial_path, O_RDWR);
  if (handle.get() < 0) return errno == ENOENT;
  if (flock(handle.get(), LOCK_EX | LOCK_NB) != 0) return false;
  return std::remove(partial_path.c_str()) == 0;
}

void PartialFile::Fail(const char* verb, int reason) const {
  throw Error(ErrorCode::kIo, final_path_,
              fmt::format("cannot {}: {}", verb, std::strerror(reason)));
}

}  // namespace hearth::hub
