#include "storage/file_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

// Small writes are gathered to this size; larger ones go straight through. 256 KiB is where the
// cost of a system call no longer shows.
constexpr size_t kPendingBytes = size_t{256} << 10;
// KeepOutOfPageCache: a window this large is on its way to the disk while the next one is filled.
constexpr uint64_t kWindowBytes = uint64_t{8} << 20;

[[noreturn]] void ThrowIo(const std::string& path, const char* verb, int reason) {
  throw Error(ErrorCode::kIo, path, fmt::format("cannot {}: {}", verb, std::strerror(reason)));
}

void WriteAll(const std::string& path, int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) ThrowIo(path, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
}

}  // namespace

FileWriter::FileWriter(const std::string& path, const std::string& shown_as, unsigned permissions)
    : path_(shown_as.empty() ? path : shown_as),
      fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, permissions)) {
  if (fd_ < 0) ThrowIo(path_, "create", errno);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
}

void FileWriter::Write(std::span<const std::byte> bytes) {
  if (fd_ < 0) throw Error(ErrorCode::kInternal, path_, "write after close");
  if (pending_.size() + bytes.size() > kPendingBytes) Flush();
  if (bytes.size() >= kPendingBytes) {
    WriteThrough(bytes);
  } else {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
  written_bytes_ += bytes.size();
}

void FileWriter::Overwrite(uint64_t offset, std::span<const std::byte> bytes) {
  if (fd_ < 0) throw Error(ErrorCode::kInternal, path_, "write after close");
  if (offset > written_bytes_ || bytes.size() > written_bytes_ - offset) {
    throw Error(ErrorCode::kInternal, path_, "overwriting", "bytes that were written",
                fmt::format("{} at {}", bytes.size(), offset));
  }
  Flush();
  while (!bytes.empty()) {
    const ssize_t put = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) ThrowIo(path_, "write", errno);
    offset += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
}

void FileWriter::Flush() {
  WriteThrough(pending_);
  pending_.clear();
}

void FileWriter::WriteThrough(std::span<const std::byte> bytes) {
  WriteAll(path_, fd_, bytes);
  flushed_bytes_ += bytes.size();
  if (drop_cached_ && flushed_bytes_ - started_bytes_ >= kWindowBytes) DropCached();
}

// Starts the new window's way to the disk, waits for what came before it and forgets that.
void FileWriter::DropCached() {
  const auto begin = static_cast<off_t>(started_bytes_);
  const auto bytes = static_cast<off_t>(flushed_bytes_ - started_bytes_);
  sync_file_range(fd_, begin, bytes, SYNC_FILE_RANGE_WRITE);
  if (begin > 0) {
    const int result = sync_file_range(
        fd_, 0, begin,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    // A file system that cannot do this keeps its cache; one that lost bytes must say so.
    if (result != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
      ThrowIo(path_, "write", errno);
    }
    posix_fadvise(fd_, 0, begin, POSIX_FADV_DONTNEED);
  }
  started_bytes_ = flushed_bytes_;
}

void FileWriter::Sync() {
  Flush();
  // EINVAL: a file that is not on a disk.
  if (fdatasync(fd_) != 0 && errno != EINVAL) ThrowIo(path_, "write", errno);
}

void FileWriter::Close() {
  if (fd_ < 0) return;
  Flush();
  if (drop_cached_ && flushed_bytes_ > 0) {
    DropCached();
    DropCached();  // a window without bytes: waits for the last one
  }
  // Some file systems report a full disk or quota only here.
  if (close(std::exchange(fd_, -1)) != 0) ThrowIo(path_, "close", errno);
}

}  // namespace hearth
