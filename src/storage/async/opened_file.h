// What the backends of asynchronous reads share: an open file and how it must be read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/async/async_reader.h"
#include "storage/file_handle.h"

namespace hearth {

// What a request to a file must keep to. The alignments are powers of two.
struct ReadLimits {
  uint64_t size_bytes = 0;
  uint32_t alignment_bytes = 1;
  uint32_t memory_alignment_bytes = 1;
};

// 0, or the errno that ReadCompletion names for such a request.
int CheckRequest(const ReadLimits& limits, const ReadRequest& request) noexcept;

struct OpenedFile {
  std::string path;
  FileHandle handle;
  FileIdentity identity;
  ReadLimits limits;
  bool direct = false;
  std::string note;  // why not direct, where it was asked for with kAuto
};

// Throws as OpenAsyncFile does.
OpenedFile OpenForReading(const std::string& path, DirectIo direct);
// The same for a file of `size_bytes` that is open already and that messages call `name`. Direct
// reads that need a larger alignment than `most_alignment` count as none.
OpenedFile PrepareReads(std::string name, FileHandle handle, uint64_t size_bytes, DirectIo direct,
                        uint32_t most_alignment);

// With the backend that the options name. Throws as OpenAsyncFile does.
std::unique_ptr<AsyncFile> MakeAsyncFile(OpenedFile file, const AsyncFileOptions& options);

// Drops what a queue read from the page cache, in batches. Does nothing for a direct file.
// Not thread-safe. Keeps a pointer to `file`.
class CacheDropper {
 public:
  explicit CacheDropper(const OpenedFile& file) : file_(file) {}
  ~CacheDropper() { Drop(); }
  CacheDropper(const CacheDropper&) = delete;
  CacheDropper& operator=(const CacheDropper&) = delete;

  // [begin, end) has been read, or tried.
  void Note(uint64_t begin, uint64_t end) noexcept;
  void Drop() noexcept;

 private:
  const OpenedFile& file_;
  uint64_t begin_ = UINT64_MAX;  // of what was noted since the last Drop
  uint64_t end_ = 0;
  uint64_t bytes_ = 0;  // at most that many of it are cached
};

// The part of an AsyncFile over a file on disk that does not depend on the backend.
class DiskFile : public AsyncFile {
 public:
  explicit DiskFile(OpenedFile file) : file_(std::move(file)) {}

  const std::string& name() const override { return file_.path; }
  uint64_t size_bytes() const override { return file_.limits.size_bytes; }
  const std::string& note() const override { return file_.note; }
  bool direct() const override { return file_.direct; }
  uint32_t alignment_bytes() const override { return file_.limits.alignment_bytes; }
  uint32_t memory_alignment_bytes() const override { return file_.limits.memory_alignment_bytes; }
  void CheckUnchanged() const override {
    CheckIdentity(file_.path, file_.handle.get(), file_.identity);
  }

 protected:
  const OpenedFile file_;
};

// Throws Error(kInvalidArgument) for options that make no sense; fills in the capacity.
QueueOptions CheckedQueueOptions(const std::string& name, const QueueOptions& options);

}  // namespace hearth
