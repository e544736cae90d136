#include "storage/block_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "storage/file_handle.h"

namespace hearth {
namespace {

// Throws unless [offset, offset + count) lies inside a source of `size` bytes.
void CheckRange(const std::string& name, uint64_t size, uint64_t offset, uint64_t count) {
  if (offset <= size && count <= size - offset) return;
  throw Error(ErrorCode::kCorrupt, name, fmt::format("read of {} bytes at {}", count, offset),
              "a range inside the file", fmt::format("a file of {} bytes", size));
}

// Whether all pages of a mapping are in memory.
bool IsResident(std::byte* mapped, size_t bytes, size_t page) noexcept {
  std::array<unsigned char, 256> pages;  // the lowest bit of each says it
  for (size_t at = 0; at < bytes; at += pages.size() * page) {
    const size_t length = std::min(bytes - at, pages.size() * page);
    if (mincore(mapped + at, length, pages.data()) != 0) return false;
    const auto end = pages.begin() + static_cast<int64_t>((length + page - 1) / page);
    if (!std::all_of(pages.begin(), end, [](unsigned char p) { return (p & 1) != 0; })) {
      return false;
    }
  }
  return true;
}

class FileReader final : public BlockReader {
 public:
  FileReader(std::string path, RegularFile file)
      : path_(std::move(path)),
        handle_(std::move(file.handle)),
        fd_(handle_.get()),
        size_(file.identity.size_bytes) {}

  const std::string& name() const override { return path_; }
  uint64_t size_bytes() const override { return size_; }
  bool is_file() const noexcept override { return true; }

  void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    CheckRange(path_, size_, offset, out.size());
    while (!out.empty()) {
      const ssize_t got = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        throw Error(ErrorCode::kIo, path_,
                    fmt::format("cannot read {} bytes at {}: {}", out.size(), offset,
                                std::strerror(errno)));
      }
      if (got == 0) {
        throw Error(ErrorCode::kIo, path_,
                    fmt::format("ended at byte {} while it was read, but had {} bytes when it was "
                                "opened",
                                offset, size_));
      }
      out = out.subspan(static_cast<size_t>(got));
      offset += static_cast<uint64_t>(got);
    }
  }

  void WillRead(uint64_t offset, uint64_t bytes) const noexcept override {
    if (bytes == 0) return;  // to posix_fadvise, 0 means up to the end
    posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }

  bool IsCached(uint64_t offset, uint64_t bytes) const noexcept override {
    if (bytes == 0) return true;
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t begin = offset / page * page;
    const size_t length = offset + bytes - begin;
    // Mapped to be asked about, not to be read.
    void* const mapped =
        mmap(nullptr, length, PROT_READ, MAP_SHARED, fd_, static_cast<off_t>(begin));
    if (mapped == MAP_FAILED) return false;
    const bool is_cached = IsResident(static_cast<std::byte*>(mapped), length, page);
    munmap(mapped, length);
    return is_cached;
  }

  void DropCached(uint64_t offset, uint64_t bytes) const noexcept override {
    if (bytes == 0) return;
    // From the run that the first byte is in; the one that the last byte is in goes with what
    // follows it.
    const uint64_t begin = offset / kLargestFolioBytes * kLargestFolioBytes;
    posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(offset + bytes - begin),
                  POSIX_FADV_DONTNEED);
  }

 private:
  const std::string path_;
  const FileHandle handle_;
  const int fd_;  // handle_'s
  const uint64_t size_;
};

class MemoryReader final : public BlockReader {
 public:
  MemoryReader(std::string name, std::vector<std::byte> bytes)
      : name_(std::move(name)), bytes_(std::move(bytes)) {}

  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override { return bytes_.size(); }

  void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    CheckRange(name_, bytes_.size(), offset, out.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }

 private:
  const std::string name_;
  const std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<BlockReader> OpenFileReader(const std::string& path) {
  return std::make_unique<FileReader>(path, OpenRegularFile(path));
}

std::unique_ptr<BlockReader> MakeMemoryReader(std::string name, std::vector<std::byte> bytes) {
  return std::make_unique<MemoryReader>(std::move(name), std::move(bytes));
}

}  // namespace hearth
