// A file of random bytes to read from, which nobody has to remove.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "storage/file_handle.h"

namespace hearth {

// Bytes that no disk can compress, in a file without a name: it is gone with the object, and with
// the process however that ends. Not movable, not thread-safe.
class ScratchFile {
 public:
  // Writes `bytes` to a file in `directory`, past the page cache, but stops at a multiple of 4 MiB
  // once `seconds` have passed and kLeastProbeFileBytes are there. `written` hears which share is
  // there. Throws Error(kNotFound) where there is no such folder, Error(kIo) where the disk has no
  // room or the system refuses.
  ScratchFile(const std::string& directory, uint64_t bytes, double seconds,
              const std::function<void(double)>& written);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Where it can be opened as long as the object lives.
  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  FileHandle handle_;
  std::string path_;
  uint64_t size_bytes_ = 0;
};

}  // namespace hearth
