// Reads through io_uring: one ring per queue, submissions and completions without a system call
// where there is nothing to say (Linux 5.6 and later).
#pragma once

#include <memory>
#include <string>

#include "storage/async/async_reader.h"
#include "storage/async/opened_file.h"

namespace hearth {

// Why io_uring cannot be used by this process, as the system says it; empty where it can.
std::string WhyNoUring();

// The caller has asked WhyNoUring.
std::unique_ptr<AsyncFile> MakeUringFile(OpenedFile file);

}  // namespace hearth
