#include "engine/load/load_chunks.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "base/stopwatch.h"

namespace hearth {
namespace {

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
    const uint64_t row_bytes =
        std::max<uint64_t>(LoadChunk{&tensor, 0, 0, 1}.stored_row_bytes(), 1);
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
  parts_.resize(file.num_parts());
  for (size_t i = 0; i < file.num_parts(); ++i) {
    if (!file.part(i).is_file()) continue;
    parts_[i] = OpenAsyncFile(file.part(i).name(), io);
    const AsyncFile& part = *parts_[i];
    if (part.size_bytes() != file.part(i).size_bytes()) {
      throw Error(ErrorCode::kIo, part.name(), "it was replaced while it was opened");
    }
  }
}

bool LoadSource::ReadsAround(const LoadChunk& chunk) const {
  const size_t index = chunk.tensor->stored->file_index;
  if (!parts_[index]) return false;
  const AsyncFile& part = *parts_[index];
  const bool can = part.direct() && LoadReader::kAlignment % part.alignment_bytes() == 0 &&
                   LoadReader::kAlignment % part.memory_alignment_bytes() == 0;
  return can && !choice_.caches() &&
         !file_.part(index).IsCached(chunk.file_offset(), chunk.stored_bytes());
}

uint64_t LoadReader::BufferBytes(uint64_t chunk_bytes) {
  // With what an aligned range has before and after it.
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
  read = {.chunk = &chunk, .around = source_.ReadsAround(chunk), .pieces = {}};
  if (!read.around) {
    source_.file().WillRead(*chunk.tensor->stored, chunk.stored_offset(), chunk.stored_bytes());
    return;
  }
  const size_t part = chunk.tensor->stored->file_index;
  SubmitPieces(QueueOf(part), source_.part(part),
               {chunk.file_offset(), chunk.stored_bytes(), kPieceBytes}, index, BufferOf(index),
               read.pieces);
}

LoadReader::Taken LoadReader::Take() {
  const Stopwatch watch;
  const size_t index = Index(taken_);
  const Read& read = reads_[index];
  const LoadChunk& chunk = *read.chunk;
  const PieceReads& pieces = read.pieces;
  const std::span<std::byte> stored(BufferOf(index) + pieces.skip, chunk.stored_bytes());
  if (read.around) {
    const size_t part = chunk.tensor->stored->file_index;
    const auto reads_of = [&](uint64_t tag) -> PieceReads& { return reads_[tag].pieces; };
    while (pieces.pending > 0) CollectPieces(QueueOf(part), true, reads_of);
    if (pieces.error != 0) ThrowReadError(source_.part(part), "weights", pieces.error);
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
