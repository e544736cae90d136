// A file descriptor that closes itself, and how a regular file is opened for reading.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace hearth {

// The page cache holds runs of pages of at most this size, aligned to it, that it forgets as a
// whole or not at all.
inline constexpr uint64_t kLargestFolioBytes = uint64_t{2} << 20;

// Owns a descriptor; -1 is none.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  ~FileHandle();

  int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

// What tells one state of a file from another.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;
};

struct RegularFile {
  FileHandle handle;
  FileIdentity identity;
};

// Throws Error(kNotFound) where there is no such file, Error(kIo) for a directory, a device or a
// file that may not be read.
RegularFile OpenRegularFile(const std::string& path);

// Throws Error(kIo) unless both the open file and what the path names now are what `identity`
// says.
void CheckIdentity(const std::string& path, int fd, const FileIdentity& identity);

}  // namespace hearth
