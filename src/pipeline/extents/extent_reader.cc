#include "pipeline/extents/extent_reader.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/stopwatch.h"

namespace hearth {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr int kExtentQueueDepth = 32;

}  // namespace

uint64_t ExtentReader::ChargedBytes(const ExtentMap& map, int64_t num_buffers) {
  return Buffer::ChargedBytes(map.shape().read_bytes * static_cast<uint64_t>(num_buffers));
}

ExtentReader::ExtentReader(Budget& budget, const ExtentMap& map,
                           std::span<const std::unique_ptr<AsyncFile>> files, int64_t num_buffers)
    : map_(map),
      files_(files),
      buffer_bytes_(map.shape().read_bytes),
      memory_(budget, "read buffers", buffer_bytes_ * static_cast<size_t>(num_buffers)),
      reads_(static_cast<size_t>(num_buffers)),
      order_(reads_.size()),
      // Two layers, and what fills the buffers at load.
      asked_(static_cast<size_t>(2 * map.keys_of_layer() + num_buffers)) {
  std::iota(order_.begin(), order_.end(), 0);
  const uint64_t pieces = (buffer_bytes_ / kPieceBytes + 1) * reads_.size();
  for (const auto& file : files) {
    if (ExtentMap::kReadAlignment % file->alignment_bytes() != 0 ||
        ExtentMap::kReadAlignment % file->memory_alignment_bytes() != 0) {
      throw Error(ErrorCode::kUnsupported, file->name(), "alignment of direct reads",
                  std::to_string(ExtentMap::kReadAlignment) + " bytes or less",
                  std::to_string(file->alignment_bytes()));
    }
    queues_.push_back(file->OpenQueue(
        {.depth = kExtentQueueDepth, .capacity = std::max<size_t>(pieces, kExtentQueueDepth)}));
  }
}

void ExtentReader::Ask(int32_t key) {
  if (num_asked() == capacity()) {
    throw Error(ErrorCode::kInternal, "ExtentReader", "more extents than fit were asked for");
  }
  asked_[(oldest_asked_ + num_waiting_++) % asked_.size()] = key;
  ReadAhead();
}

void ExtentReader::ReadAhead() {
  while (num_reads_ < reads_.size() && num_waiting_ > 0) {
    Submit(order_[num_reads_++], asked_[oldest_asked_]);
    oldest_asked_ = (oldest_asked_ + 1) % asked_.size();
    --num_waiting_;
  }
}

void ExtentReader::Submit(size_t index, int32_t key) {
  const Extent extent = map_.At(key);
  const size_t part = extent.matrix->part;
  Read& read = reads_[index];
  read = {.key = key, .bytes = extent.stored_bytes(), .part = part, .pieces = {}};
  bytes_read_ +=
      SubmitPieces(*queues_[part], *files_[part], {extent.file_offset(), read.bytes, kPieceBytes},
                   index, BufferOf(index), read.pieces);
}

void ExtentReader::Collect(size_t part, bool wait) noexcept {
  CollectPieces(*queues_[part], wait,
                [&](uint64_t tag) -> PieceReads& { return reads_[tag].pieces; });
}

// The place in order_ of a read that has ended, or `among`.
size_t ExtentReader::FirstThereOf(size_t among) const {
  size_t place = 0;
  while (place < among && reads_[order_[place]].pieces.pending > 0) ++place;
  return place;
}

ExtentReader::Taken ExtentReader::TakeAnyOf(int64_t among) {
  const size_t wanted = std::min(static_cast<size_t>(among), num_reads_);
  if (wanted == 0) throw Error(ErrorCode::kInternal, "ExtentReader", "nothing was asked for");
  const Stopwatch watch;
  for (size_t part = 0; part < queues_.size(); ++part) Collect(part, false);
  while ((taken_ = FirstThereOf(wanted)) == wanted) Collect(reads_[order_.front()].part, true);
  wait_seconds_ += watch.Seconds();
  const Read& read = reads_[order_[taken_]];
  const PieceReads& pieces = read.pieces;
  if (pieces.error != 0) ThrowReadError(*files_[read.part], "weights", pieces.error);
  return {read.key, {BufferOf(order_[taken_]) + pieces.skip, read.bytes}};
}

void ExtentReader::Done() {
  const auto taken = order_.begin() + static_cast<int64_t>(taken_);
  std::rotate(taken, taken + 1, order_.begin() + static_cast<int64_t>(num_reads_));
  --num_reads_;
  ReadAhead();
}

void ExtentReader::Stop() noexcept {
  for (size_t part = 0; part < queues_.size(); ++part) {
    while (queues_[part]->in_flight() > 0) Collect(part, true);
  }
  for (Read& read : reads_) read = {};
  num_reads_ = 0;
  num_waiting_ = 0;
}

}  // namespace hearth
