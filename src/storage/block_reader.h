// Random access to the bytes of a file or of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace hearth {

// Synchronous reads at an offset. Implementations are immutable and thread-safe.
class BlockReader {
 public:
  virtual ~BlockReader() = default;

  virtual const std::string& name() const = 0;  // for messages: the path, or a made-up name
  virtual uint64_t size_bytes() const = 0;
  // Whether name() is the path of a file that has these bytes, so that it can be opened for other
  // ways of reading (storage/async/).
  virtual bool is_file() const noexcept { return false; }

  // Fills `out` from `offset`. Throws Error(kCorrupt) when the range passes the end and
  // Error(kIo) when the system fails; short reads are retried.
  virtual void ReadAt(uint64_t offset, std::span<std::byte> out) const = 0;

  // Tells the system that these bytes will be read soon, so that it can begin to fetch them. A
  // hint: does nothing where bytes are at hand.
  virtual void WillRead(uint64_t offset, uint64_t bytes) const noexcept {
    static_cast<void>(offset);
    static_cast<void>(bytes);
  }

  // Whether reading these bytes would wait for no device: they are in memory, or all in the page
  // cache. Where the system does not tell a file's readers (it does its owner), they are taken to
  // be there.
  virtual bool IsCached(uint64_t offset, uint64_t bytes) const noexcept {
    static_cast<void>(offset);
    static_cast<void>(bytes);
    return true;
  }

  // Tells the system that these bytes will not be read again, so that its page cache need not
  // keep them (they count against a memory cgroup). Pages are forgotten in runs of up to 2 MiB:
  // some before the first byte may go too, some up to the last may stay until what follows is
  // dropped. A hint: does nothing where there is no cache.
  virtual void DropCached(uint64_t offset, uint64_t bytes) const noexcept {
    static_cast<void>(offset);
    static_cast<void>(bytes);
  }
};

// A regular file, read with pread. Throws Error(kNotFound) where there is none, Error(kIo) for a
// directory, a device or a file that may not be read.
std::unique_ptr<BlockReader> OpenFileReader(const std::string& path);

// Bytes in memory, owned by the reader.
std::unique_ptr<BlockReader> MakeMemoryReader(std::string name, std::vector<std::byte> bytes);

}  // namespace hearth
