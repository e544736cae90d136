// One read from its request to its end, over the partial results that the system may return.
#pragma once

#include <cstddef>
#include <cstdint>

#include "storage/async/opened_file.h"

namespace hearth {

enum class ReadStep { kDone, kAgain, kFailed };

// What is left to read, and where it goes. Plain data: not thread-safe.
struct ReadProgress {
  uint64_t tag = 0;
  uint64_t begin = 0;  // of the whole request
  uint64_t end = 0;
  uint64_t offset = 0;  // of what is left
  std::byte* data = nullptr;
  uint32_t bytes = 0;   // to ask for
  uint32_t needed = 0;  // less where the last aligned block passes the end of the file
  int retries = 0;
  int error = 0;  // after kFailed

  // `request` has passed CheckRequest.
  void Begin(const ReadRequest& request, const ReadLimits& limits) noexcept;

  // Takes what the system returned for [offset, offset + bytes): a count, 0 at the end of the
  // file, or a negative errno. kAgain: ask for what is left now.
  ReadStep Advance(int64_t result, const ReadLimits& limits) noexcept;
};

}  // namespace hearth
