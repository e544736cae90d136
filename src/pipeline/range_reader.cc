#include "pipeline/range_reader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>

#include "pipeline/bundle_checks.h"

namespace hearth {
namespace {

// A range is read in pieces, so that a disk with several channels uses them all.
constexpr uint64_t kReadBytes = uint64_t{1} << 20;
constexpr int kRangeQueueDepth = 16;
constexpr int64_t kCheckGrain = 64;

}  // namespace

RangeReader::RangeReader(BundleStore& store)
    : store_(store), buffers_(static_cast<size_t>(store.plan().range_buffers)) {
  const uint64_t range_bytes =
      static_cast<uint64_t>(store.plan().range_neurons) * store.source().layout.stride;
  const uint64_t reads = (range_bytes / kReadBytes + 1) * buffers_.size();
  queue_ = store.file().OpenQueue(
      {.depth = kRangeQueueDepth, .capacity = std::max<size_t>(reads, kRangeQueueDepth)});
  for (size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].bundles = store.RangeBuffer(static_cast<int64_t>(i)).data();
  }
}

// Behind `count` neurons; nowhere behind the last FFN that is known to follow.
RangeReader::Place RangeReader::Next(Place place, int64_t count) const {
  const BundleSource& source = store_.source();
  place.neuron += count;
  if (place.neuron < prefix_.value_or(source.neurons)) return place;
  const bool reads_on = !prefix_ && source.num_experts == 1 && place.ffn + 1 < source.num_ffns();
  if (!reads_on) return {-1, 0};
  return {place.ffn + 1, store_.plan().pinned_neurons};
}

void RangeReader::Begin(int64_t ffn, int64_t neuron) {
  const Place wanted = {ffn, neuron};
  if (filled_ == 0 || in_order_ != wanted) {
    const std::optional<int64_t> prefix = prefix_;
    Stop();
    prefix_ = prefix;
    in_order_ = to_read_ = wanted;
  }
  ReadAhead();
}

void RangeReader::ReadAhead() {
  while (filled_ < buffers_.size() && to_read_.ffn >= 0) {
    const size_t buffer = (oldest_ + filled_) % buffers_.size();
    Range& range = buffers_[buffer];
    range.ffn = to_read_.ffn;
    range.first = to_read_.neuron;
    range.count = std::min(store_.plan().range_neurons,
                           prefix_.value_or(store_.source().neurons) - range.first);
    range.error = 0;
    SubmitRange(buffer);
    ++filled_;
    to_read_ = Next(to_read_, range.count);
  }
}

void RangeReader::SubmitRange(size_t buffer) {
  Range& range = buffers_[buffer];
  const uint64_t offset = store_.FileOffset(range.ffn, range.first);
  // Pieces of whole bundles keep every read aligned.
  const uint64_t stride = store_.source().layout.stride;
  const uint64_t all = static_cast<uint64_t>(range.count) * stride;
  const uint64_t piece = std::max<uint64_t>(kReadBytes / stride, 1) * stride;
  for (uint64_t at = 0; at < all; at += piece) {
    const uint64_t bytes = std::min<uint64_t>(piece, all - at);
    const ReadRequest request = {.offset = offset + at,
                                 .data = range.bundles + at,
                                 .bytes = static_cast<uint32_t>(bytes),
                                 .tag = buffer};
    if (queue_->Submit({&request, 1}) != 1) {
      range.error = EAGAIN;
      return;
    }
    ++range.pending;
    ++counts_.reads;
    counts_.bytes_read += bytes;
  }
}

void RangeReader::Collect(bool wait) {
  std::array<ReadCompletion, 32> done;
  const size_t count = wait ? queue_->Wait(done) : queue_->Poll(done);
  for (size_t i = 0; i < count; ++i) {
    Range& range = buffers_[done[i].tag];
    --range.pending;
    if (done[i].error != 0) range.error = done[i].error;
  }
}

RangeReader::Range RangeReader::Take(Compute& compute) {
  Range& range = buffers_[oldest_];
  const Stopwatch watch;
  Collect(false);
  while (range.pending > 0) Collect(true);
  counts_.idle_seconds += watch.Seconds() * compute.threads();
  if (range.error != 0) store_.ThrowReadError(range.error);
  Verify(compute, range);
  return range;
}

void RangeReader::Count(const Stopwatch& watch) {
  const int64_t neurons = store_.source().neurons, pinned = store_.plan().pinned_neurons;
  counts_.neurons += neurons;
  counts_.pinned += pinned;
  counts_.misses += neurons - pinned;
  counts_.wall_seconds += watch.Seconds();
}

void RangeReader::Verify(Compute& compute, const Range& range) const {
  const BundleLayout& layout = store_.source().layout;
  std::atomic<int64_t> damaged{-1};
  compute.team().ParallelFor(range.count, kCheckGrain, [&](int64_t begin, int64_t end, int) {
    std::array<int32_t, kCheckGrain> rows;
    for (; begin < end; begin += kCheckGrain) {
      const int64_t count = std::min(end - begin, kCheckGrain);
      std::iota(rows.begin(), rows.begin() + count, static_cast<int32_t>(begin));
      const int64_t found = FindDamagedBundle(compute.kernels(), layout,
                                              {range.bundles, layout.stride, rows.data(), count});
      if (found >= 0) damaged = begin + found;
    }
  });
  if (damaged >= 0) store_.ThrowDamaged(range.ffn, range.first + damaged);
}

// The oldest range has been used: its slots take what comes next.
void RangeReader::Recycle() {
  in_order_ = Next(in_order_, buffers_[oldest_].count);
  oldest_ = (oldest_ + 1) % buffers_.size();
  --filled_;
  ReadAhead();
}

void RangeReader::Stop() noexcept {
  while (queue_->in_flight() > 0) Collect(true);
  for (Range& range : buffers_) range.pending = 0;
  filled_ = 0;
  in_order_ = to_read_ = {-1, 0};
  prefix_.reset();
}

}  // namespace hearth
