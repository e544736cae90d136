// What tests of asynchronous reads share: a file of random bytes, memory to read to, and every kind
// of AsyncFile over one path.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/random_words.h"
#include "storage/async/async_reader.h"
#include "storage/async/memory_file.h"

namespace hearth {

inline std::vector<std::byte> RandomBytes(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  RandomWords random(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.Next() >> 56);
  return bytes;
}

// A file that is there as long as the object. Where TMPDIR or the default is not on a disk, direct
// reads may be missing; tests of them then skip.
class SampleFile {
 public:
  explicit SampleFile(size_t size, const char* name = "async_reader_test")
      : path_(testing::TempDir() + "/" + name + "." + std::to_string(getpid())),
        bytes_(RandomBytes(size, size)) {
    Write(bytes_);
  }
  ~SampleFile() { std::filesystem::remove(path_); }
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  void Write(const std::vector<std::byte>& bytes) const {
    std::ofstream out(path_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::string path_;
  std::vector<std::byte> bytes_;
};

// Page-aligned memory.
inline Buffer Memory(size_t bytes) {
  static Budget budget;
  return Buffer(budget, "test", bytes);
}

// Whether [offset, offset + bytes), as far as it is in the file, lies at `data`.
inline bool Matches(const std::vector<std::byte>& whole, const ReadRequest& request) {
  const size_t there = std::min<size_t>(request.bytes, whole.size() - request.offset);
  return std::memcmp(request.data, whole.data() + request.offset, there) == 0;
}

// Waits for all that is in flight; the completions in the order they came.
inline std::vector<ReadCompletion> WaitForAll(ReadQueue& queue) {
  std::vector<ReadCompletion> all;
  std::vector<ReadCompletion> some(5);
  while (queue.in_flight() > 0) {
    const size_t got = queue.Wait(some);
    EXPECT_GT(got, 0u);
    all.insert(all.end(), some.begin(), some.begin() + static_cast<ptrdiff_t>(got));
  }
  return all;
}

// A way to open a path; `open` throws Error(kUnsupported) where this machine has no such thing.
struct FileKind {
  std::string name;
  std::function<std::unique_ptr<AsyncFile>(const std::string& path)> open;
};
inline std::ostream& operator<<(std::ostream& out, const FileKind& kind) {
  return out << kind.name;
}

inline FileKind DiskKind(const std::string& name, IoBackend backend, DirectIo direct) {
  return {name, [=](const std::string& path) {
            return OpenAsyncFile(path, {.backend = backend, .direct = direct, .pread_threads = 3});
          }};
}

inline std::vector<FileKind> DiskKinds() {
  return {DiskKind("UringDirect", IoBackend::kIoUring, DirectIo::kOn),
          DiskKind("UringBuffered", IoBackend::kIoUring, DirectIo::kOff),
          DiskKind("PreadDirect", IoBackend::kPread, DirectIo::kOn),
          DiskKind("PreadBuffered", IoBackend::kPread, DirectIo::kOff)};
}

// A file in memory with alignments as of a direct file, its completions shuffled.
inline std::unique_ptr<AsyncFile> ShuffledMemoryFile(const std::string& path) {
  static Budget budget;
  return LoadMemoryFile(
      path, budget, {.alignment_bytes = 512, .memory_alignment_bytes = 64, .completion_seed = 7});
}

}  // namespace hearth
