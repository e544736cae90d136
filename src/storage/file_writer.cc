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

FileWriter::FileWriter(const std::string& path, const std::string& shown_as)
    : path_(shown_as.empty() ? path : shown_as),
      fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) ThrowIo(path_, "create", errno);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
}

void FileWriter::Write(std::span<const std::byte> bytes) {
  if (fd_ < 0) throw Error(ErrorCode::kInternal, path_, "write after close");
  if (pending_.size() + bytes.size() > kPendingBytes) Flush();
  if (bytes.size() >= kPendingBytes) {
    WriteAll(path_, fd_, bytes);
  } else {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
  written_bytes_ += bytes.size();
}

void FileWriter::Flush() {
  WriteAll(path_, fd_, pending_);
  pending_.clear();
}

void FileWriter::Close() {
  if (fd_ < 0) return;
  Flush();
  // Some file systems report a full disk or quota only here.
  if (close(std::exchange(fd_, -1)) != 0) ThrowIo(path_, "close", errno);
}

}  // namespace hearth
