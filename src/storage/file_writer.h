// Sequential writing of a new file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hearth {

// Buffers small writes. Not thread-safe. Errors name the path and the system's reason.
class FileWriter {
 public:
  // Creates or truncates. Throws Error(kIo). Messages say `shown_as`, where it is given, instead
  // of the path (a temporary name means nothing to a user). permissions: of a file that is new,
  // less what the process's mask takes.
  explicit FileWriter(const std::string& path, const std::string& shown_as = "",
                      unsigned permissions = 0666);
  ~FileWriter();  // closes; unflushed bytes are lost unless Close was called

  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void Write(std::span<const std::byte> bytes);
  // Replaces bytes that have been written.
  void Overwrite(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t written_bytes() const { return written_bytes_; }

  // From now on what is written goes to the disk soon and leaves the page cache, which counts
  // against a memory cgroup: at most some 16 MiB of it stay there, and nothing after Close.
  void KeepOutOfPageCache() { drop_cached_ = true; }

  // Hands what is buffered to the system, so that others who open the file find it.
  void Flush();

  // Flushes and waits until the disk has it. Throws Error(kIo) where it could not be taken.
  void Sync();

  // Flushes and closes. Throws Error(kIo) where the system could not take the bytes.
  void Close();

 private:
  void WriteThrough(std::span<const std::byte> bytes);
  void DropCached();

  std::string path_;  // as shown in messages
  int fd_ = -1;
  std::vector<std::byte> pending_;
  uint64_t written_bytes_ = 0;
  uint64_t flushed_bytes_ = 0;  // of those, how many the system has
  bool drop_cached_ = false;
  uint64_t started_bytes_ = 0;  // where drop_cached_: their way to the disk has begun
};

}  // namespace hearth
