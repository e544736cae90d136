// Bytes in memory behind the interface of asynchronous reads: the fastest device there is, for
// tests and under storage/async/throttled_file.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/budget.h"
#include "base/buffer.h"
#include "storage/async/async_reader.h"

namespace hearth {

struct MemoryFileOptions {
  // As of a direct file; powers of two. What lies between the end and the last multiple of
  // alignment_bytes reads as zeros.
  uint32_t alignment_bytes = 1;
  uint32_t memory_alignment_bytes = 1;
  // With 0, Poll completes what was submitted in order, as much as it is given room for. Else it
  // completes some of the reads or none, in an order that follows from the seed, the number of
  // the queue and the calls made so far.
  uint64_t completion_seed = 0;
};

// Data is copied when a read completes, not when it is submitted. Throws Error(kInvalidArgument)
// for alignments that are not powers of two.
std::unique_ptr<AsyncFile> MakeMemoryFile(std::string name, Buffer bytes,
                                          const MemoryFileOptions& options = {});

// The same with the contents of a file, charged to `budget` as "file in memory". Throws as
// OpenFileReader and Buffer do.
std::unique_ptr<AsyncFile> LoadMemoryFile(const std::string& path, Budget& budget,
                                          const MemoryFileOptions& options = {});

}  // namespace hearth
