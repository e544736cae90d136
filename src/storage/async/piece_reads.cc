#include "storage/async/piece_reads.h"

#include <algorithm>
#include <cerrno>

namespace hearth {

uint64_t SubmitPieces(ReadQueue& queue, const AsyncFile& file, uint64_t offset, uint64_t bytes,
                      uint64_t piece_bytes, uint64_t tag, std::byte* data,
                      PieceReads& reads) noexcept {
  const AlignedRange range = CoveringRange(offset, bytes, file.alignment_bytes());
  reads = {.skip = range.skip};
  uint64_t submitted = 0;
  while (submitted < range.bytes) {
    const uint64_t piece = std::min(piece_bytes, range.bytes - submitted);
    const ReadRequest request = {.offset = range.offset + submitted,
                                 .data = data + submitted,
                                 .bytes = static_cast<uint32_t>(piece),
                                 .tag = tag};
    if (queue.Submit({&request, 1}) != 1) {
      reads.error = EAGAIN;
      break;
    }
    ++reads.pending;
    submitted += piece;
  }
  return submitted;
}

}  // namespace hearth
