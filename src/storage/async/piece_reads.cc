#include "storage/async/piece_reads.h"

#include <algorithm>
#include <cerrno>

namespace hearth {

uint64_t SubmitPieces(ReadQueue& queue, const AsyncFile& file, const FileRun& run, uint64_t tag,
                      std::byte* data, PieceReads& reads) noexcept {
  const AlignedRange range = CoveringRange(run.offset, run.bytes, file.alignment_bytes());
  reads = {.skip = range.skip};
  uint64_t submitted = 0;
  while (submitted < range.bytes) {
    const uint64_t piece = std::min(run.piece_bytes, range.bytes - submitted);
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
