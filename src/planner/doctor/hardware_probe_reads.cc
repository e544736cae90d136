#include "planner/doctor/hardware_probe_reads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kMostPlaces = uint64_t{1} << 31;  // RandomWords::NextBelow

}  // namespace

ProbeFile::ProbeFile(const ProfilerOptions& options, const std::function<void(double)>& written)
    : place_(options.file.empty() ? options.directory : options.file) {
  if (options.file.empty()) {
    scratch_.emplace(options.directory, options.effort.file_bytes, options.effort.write_seconds,
                     written);
  }
  file_ = OpenAsyncFile(scratch_ ? scratch_->path() : options.file);
  if (file_->size_bytes() < kLeastProbeFileBytes) {
    throw Error(ErrorCode::kInvalidArgument, place_, "size of a file to read from",
                fmt::format("at least {}", FormatSize(kLeastProbeFileBytes)),
                FormatSize(file_->size_bytes()));
  }
}

ReadRequest RandomRead(const AsyncFile& file, const IoSpeed& kind, std::span<std::byte> memory,
                       uint64_t slot, RandomWords& random) {
  const uint64_t range = kind.range_bytes == 0 ? file.size_bytes() : kind.range_bytes;
  const uint64_t places = std::min(range / kind.block_bytes, kMostPlaces);
  return {.offset = random.NextBelow(places) * kind.block_bytes,
          .data = memory.data() + slot * kind.block_bytes,
          .bytes = static_cast<uint32_t>(kind.block_bytes),
          .tag = slot};
}

ReadsInFlight::ReadsInFlight(AsyncFile& file, const IoSpeed& kind, std::span<std::byte> memory,
                             RandomWords& random)
    : file_(file),
      kind_(kind),
      memory_(memory),
      random_(random),
      queue_(file.OpenQueue({.depth = kind.queue_depth})) {
  for (int i = 0; i < kind.queue_depth; ++i) {
    next_.push_back(RandomRead(file_, kind_, memory_, static_cast<uint64_t>(i), random_));
  }
  static_cast<void>(queue_->Submit(next_));  // takes its depth
}

void ReadsInFlight::TakeIn(bool waits, bool again) noexcept {
  std::array<ReadCompletion, 64> done;
  const size_t count = waits ? queue_->Wait(done) : queue_->Poll(done);
  next_.clear();  // keeps the room of the first reads
  for (const ReadCompletion& completion : std::span(done).first(count)) {
    if (completion.error != 0) error_ = completion.error;
    num_taken_in_ += 1;
    if (again && error_ == 0) {
      next_.push_back(RandomRead(file_, kind_, memory_, completion.tag, random_));
    }
  }
  static_cast<void>(queue_->Submit(next_));
}

void ReadsInFlight::CheckNoneFailed() const {
  if (error_ != 0) ThrowReadError(file_, "a block", error_);
}

RangesInOrder::RangesInOrder(AsyncFile& file, std::span<std::byte> memory, uint64_t range_bytes,
                             int buffers)
    : file_(file),
      memory_(memory),
      range_bytes_(range_bytes),
      num_ranges_(std::max<uint64_t>(file.size_bytes() / range_bytes, 1)),
      has_come_(static_cast<size_t>(buffers)),
      queue_(file.OpenQueue({.depth = buffers})) {
  for (int i = 0; i < buffers; ++i) ReadNext();
}

void RangesInOrder::Take() {
  std::array<ReadCompletion, 16> done;
  while (!has_come_[oldest_]) {
    const size_t count = queue_->Wait(done);
    for (const ReadCompletion& completion : std::span(done).first(count)) {
      if (completion.error != 0) ThrowReadError(file_, "a range", completion.error);
      has_come_[completion.tag] = true;
    }
  }
}

void RangesInOrder::ReadNext() {
  const ReadRequest request = {.offset = next_++ % num_ranges_ * range_bytes_,
                               .data = memory_.data() + oldest_ * range_bytes_,
                               .bytes = static_cast<uint32_t>(range_bytes_),
                               .tag = oldest_};
  has_come_[oldest_] = false;
  static_cast<void>(queue_->Submit({&request, 1}));  // has room for all buffers
  oldest_ = (oldest_ + 1) % has_come_.size();
}

}  // namespace hearth
