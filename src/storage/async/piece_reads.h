// A run of a file's bytes on its way to a buffer: given to a queue in pieces, so that a disk with
// several channels uses them all, and there when the last of them has come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "storage/async/async_reader.h"

namespace hearth {

// What is read: [offset, offset + bytes) of a file, in pieces of at most piece_bytes, a multiple of
// the file's alignment.
struct FileRun {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t piece_bytes = 0;
};

struct PieceReads {
  uint64_t skip = 0;  // bytes of the buffer before the run
  int pending = 0;    // pieces
  int error = 0;      // 0, or the errno of one that failed
};

// Submits the smallest aligned range around a run of `file`, in pieces that come back with `tag`.
// Returns the bytes of the pieces that the queue took. `data` must be aligned and have room for the
// range. Where the queue is full, reads.error is EAGAIN.
uint64_t SubmitPieces(ReadQueue& queue, const AsyncFile& file, const FileRun& run, uint64_t tag,
                      std::byte* data, PieceReads& reads) noexcept;

// Enters completions where they belong: reads_of(tag) is what has `pending` and `error`. Where it
// waits, until there is at least one; nothing happens where nothing is in flight.
template <typename ReadsOf>
void CollectPieces(ReadQueue& queue, bool wait, ReadsOf&& reads_of) noexcept {
  std::array<ReadCompletion, 32> done;
  const size_t count = wait ? queue.Wait(done) : queue.Poll(done);
  for (size_t i = 0; i < count; ++i) {
    auto& reads = reads_of(done[i].tag);
    --reads.pending;
    if (done[i].error != 0) reads.error = done[i].error;
  }
}

}  // namespace hearth
