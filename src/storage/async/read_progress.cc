#include "storage/async/read_progress.h"

#include <algorithm>
#include <cerrno>

namespace hearth {
namespace {

// How often one read is tried again when the system only says "not now".
constexpr int kMaxRetries = 100;

bool IsPassing(int64_t result) {
  // ECANCELED: the thread that submitted the read has ended.
  return result == -EINTR || result == -EAGAIN || result == -ECANCELED;
}

}  // namespace

void ReadProgress::Begin(const ReadRequest& request, const ReadLimits& limits) noexcept {
  tag = request.tag;
  begin = request.offset;
  end = request.offset + request.bytes;
  offset = request.offset;
  data = request.data;
  bytes = request.bytes;
  needed = static_cast<uint32_t>(std::min(end, limits.size_bytes) - offset);
  retries = 0;
  error = 0;
}

ReadStep ReadProgress::Advance(int64_t result, const ReadLimits& limits) noexcept {
  if (result < 0) {
    if (IsPassing(result) && ++retries <= kMaxRetries) return ReadStep::kAgain;
    error = static_cast<int>(-result);
    return ReadStep::kFailed;
  }
  if (result >= int64_t{needed}) return ReadStep::kDone;
  // A direct read that stops inside a block has met an end of the file that was not there before.
  const uint32_t alignment = std::max(limits.alignment_bytes, limits.memory_alignment_bytes);
  if (result == 0 || result % alignment != 0) {
    error = EIO;
    return ReadStep::kFailed;
  }
  const auto got = static_cast<uint32_t>(result);
  offset += got;
  data += got;
  bytes -= got;
  needed -= got;
  return ReadStep::kAgain;
}

}  // namespace hearth
