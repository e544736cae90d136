#include "engine/load_chunks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "base/stopwatch.h"

namespace hearth {
namespace {

// A chunk is read in pieces, so that a disk with several channels uses them all.
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;
constexpr size_t kMostInFlight = 64;  // of a thread's pieces; those beyond wait in its queue

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

std::vector<LoadChunk> SplitIntoChunks(const std::vector<ResidentTensor>& tensors,
                                       uint64_t most_bytes) {
  std::vector<LoadChunk> chunks;
  for (const ResidentTensor& tensor : tensors) {
    const auto rows = static_cast<uint64_t>(tensor.decl.rows);
    const auto experts = static_cast<uint64_t>(tensor.decl.experts);
    const uint64_t row_bytes = std::max<uint64_t>(tensor.stored->bytes / (rows * experts), 1);
    const uint64_t unit = tensor.is_tiled ? TileLayout::kRows : 1;
    const uint64_t rows_per_chunk = std::max<uint64_t>(1, most_bytes / (row_bytes * unit)) * unit;
    for (uint64_t expert = 0; expert < experts; ++expert) {
      for (uint64_t row = 0; row < rows; row += rows_per_chunk) {
        chunks.push_back({&tensor, expert, row, std::min(rows_per_chunk, rows - row)});
      }
    }
  }
  std::sort(chunks.begin(), chunks.end(), [](const LoadChunk& a, const LoadChunk& b) {
    const auto place = [](const LoadChunk& c) {
      return std::pair(c.tensor->stored->file_index, c.file_offset());
    };
    return place(a) < place(b);
  });
  return chunks;
}

void CacheChoice::Note(uint64_t bytes, double wait_seconds, double work_seconds) noexcept {
  if (!may_cache_ || bytes_ >= kDecideBytes) return;
  const int64_t waited = wait_ns_ += Nanoseconds(wait_seconds);
  const int64_t worked = work_ns_ += Nanoseconds(work_seconds);
  const uint64_t before = bytes_.fetch_add(bytes);
  if (before < kDecideBytes && before + bytes >= kDecideBytes) {
    caches_ = static_cast<double>(waited) > kWorthwhile * static_cast<double>(worked);
  }
}

LoadSource::LoadSource(const GgufFile& file, const AsyncFileOptions& io, bool may_cache)
    : file_(file), drops_cache_(!may_cache), choice_(may_cache) {
  for (size_t i = 0; i < file.num_parts(); ++i) {
    parts_.push_back(OpenAsyncFile(file.part(i).name(), io));
    const AsyncFile& part = *parts_.back();
    if (part.size_bytes() != file.part(i).size_bytes()) {
      throw Error(ErrorCode::kIo, part.name(), "it was replaced while it was opened");
    }
  }
}

bool LoadSource::ReadsAround(const LoadChunk& chunk) const {
  const size_t index = chunk.tensor->stored->file_index;
  const AsyncFile& part = *parts_[index];
  const bool can = part.direct() && LoadReader::kAlignment % part.alignment_bytes() == 0 &&
                   LoadReader::kAlignment % part.memory_alignment_bytes() == 0;
  return can && !choice_.caches() &&
         !file_.part(index).IsCached(chunk.file_offset(), chunk.stored_bytes());
}

uint64_t LoadReader::BufferBytes(uint64_t chunk_bytes) {
  // With what an aligned range has before and behind it.
  return RoundUp(chunk_bytes, kAlignment) + kAlignment;
}

LoadReader::LoadReader(LoadSource& source, uint64_t most_chunk_bytes, size_t num_buffers)
    : source_(source),
      buffer_bytes_(BufferBytes(most_chunk_bytes)),
      reads_(num_buffers),
      memory_(new (std::align_val_t{kAlignment}) std::byte[buffer_bytes_ * num_buffers]),
      queues_(source.num_parts()) {}

ReadQueue& LoadReader::QueueOf(size_t part) {
  if (!queues_[part]) {
    const auto pieces = static_cast<size_t>(buffer_bytes_ / kPieceBytes + 1) * reads_.size();
    const int depth = static_cast<int>(std::min(pieces, kMostInFlight));
    queues_[part] = source_.part(part).OpenQueue({.depth = depth, .capacity = pieces});
  }
  return *queues_[part];
}

void LoadReader::Ask(const LoadChunk& chunk) {
  const size_t index = Index(asked_++);
  Read& read = reads_[index];
  read = {.chunk = &chunk, .around = source_.ReadsAround(chunk)};
  if (!read.around) {
    source_.file().WillRead(*chunk.tensor->stored, chunk.stored_offset(), chunk.stored_bytes());
    return;
  }
  const size_t part = chunk.tensor->stored->file_index;
  const AlignedRange range = CoveringRange(chunk.file_offset(), chunk.stored_bytes(),
                                           source_.part(part).alignment_bytes());
  read.skip = range.skip;
  for (uint64_t at = 0; at < range.bytes; at += kPieceBytes) {
    const ReadRequest request = {
        .offset = range.offset + at,
        .data = BufferOf(index) + at,
        .bytes = static_cast<uint32_t>(std::min(kPieceBytes, range.bytes - at)),
        .tag = index};
    if (QueueOf(part).Submit({&request, 1}) == 1) {
      ++read.pending;
    } else {
      read.error = EAGAIN;
    }
  }
}

void LoadReader::Wait(size_t index) {
  std::array<ReadCompletion, 32> done;
  Read& read = reads_[index];
  while (read.pending > 0) {
    const size_t count = QueueOf(read.chunk->tensor->stored->file_index).Wait(done);
    for (size_t i = 0; i < count; ++i) {
      Read& ended = reads_[done[i].tag];
      --ended.pending;
      if (done[i].error != 0) ended.error = done[i].error;
    }
  }
}

LoadReader::Taken LoadReader::Take() {
  const Stopwatch watch;
  const size_t index = Index(taken_);
  const Read& read = reads_[index];
  const LoadChunk& chunk = *read.chunk;
  const std::span<std::byte> stored(BufferOf(index) + read.skip, chunk.stored_bytes());
  if (read.around) {
    Wait(index);
    if (read.error != 0) {
      ThrowReadError(source_.part(chunk.tensor->stored->file_index), "weights", read.error);
    }
  } else {
    source_.file().ReadTensor(*chunk.tensor->stored, chunk.stored_offset(), stored);
  }
  wait_seconds_ = watch.Seconds();
  return {chunk, stored};
}

void LoadReader::Done(double work_seconds) {
  const Read& read = reads_[Index(taken_++)];
  const LoadChunk& chunk = *read.chunk;
  if (read.around) {
    source_.choice().Note(chunk.stored_bytes(), wait_seconds_, work_seconds);
  } else if (source_.drops_cache()) {
    source_.file().DropCached(*chunk.tensor->stored, chunk.stored_offset(), chunk.stored_bytes());
  }
}

}  // namespace hearth
