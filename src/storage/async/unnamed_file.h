// A file without a name, for what leaves memory for a while. It is gone when the process is,
// however that ends: no folder ever lists it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "storage/async/async_reader.h"

namespace hearth {

struct UnnamedFile {
  // A multiple of the alignments that `file` asks for.
  static constexpr uint32_t kAlignment = 4096;

  std::unique_ptr<AsyncFile> file;  // its name is "a file in FOLDER"
  // Returns 0 or an errno; offset, size and address are multiples of kAlignment. One thread at a
  // time. What was written is not left in the page cache.
  std::function<int(uint64_t offset, std::span<const std::byte> bytes)> write;
};

// A sparse file of `bytes` in `folder`: it takes space on the disk as it is written to. Throws
// Error(kNotFound) where there is no such folder, Error(kIo) where no file can be made in it, and
// what OpenAsyncFile throws for its options.
UnnamedFile OpenUnnamedFile(const std::string& folder, uint64_t bytes,
                            const AsyncFileOptions& options = {});

// The folder for such files where the user names none: $TMPDIR, or /var/tmp, which unlike /tmp lies
// on a disk everywhere.
std::string TemporaryFolder();

}  // namespace hearth
