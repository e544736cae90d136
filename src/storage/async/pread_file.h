// Reads by a few threads that call pread, for systems that forbid io_uring.
#pragma once

#include <memory>

#include "storage/async/async_reader.h"
#include "storage/async/opened_file.h"

namespace hearth {

// Starts up to `threads` threads as queues are opened; all queues of the file share them. Throws
// Error(kInvalidArgument) unless 1 <= threads <= 256.
std::unique_ptr<AsyncFile> MakePreadFile(OpenedFile file, int threads);

}  // namespace hearth
