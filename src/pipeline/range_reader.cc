#include "pipeline/range_reader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/rounding.h"
#include "pipeline/bundle_checks.h"
#include "storage/async/piece_reads.h"

namespace hearth {
namespace {

constexpr int64_t kCheckGrain = 64;

// Of a range, shorter runs that the cache has are read all the same, with what is around them: by
// then a disk has hardly begun another read.
constexpr uint64_t kShortestRunBytes = uint64_t{32} << 10;

int64_t ShortestRun(uint64_t stride) {
  return static_cast<int64_t>(std::max<uint64_t>(kShortestRunBytes / stride, 1));
}

// Calls visit(begin, end, is) for the runs of [0, count) with the same is = is_of(i).
template <typename Is, typename Visit>
void ForEachRun(size_t count, Is&& is_of, Visit&& visit) {
  for (size_t begin = 0, end; begin < count; begin = end) {
    const bool is = is_of(begin);
    for (end = begin + 1; end < count && is_of(end) == is;) ++end;
    visit(begin, end, is);
  }
}

// Calls visit(begin, end, is_cached) for the runs of a range.
template <typename Range, typename Visit>
void ForEachRun(const Range& range, Visit&& visit) {
  ForEachRun(
      range.slots.size(), [&](size_t i) { return range.IsCached(i); }, visit);
}

}  // namespace

RangeReader::RangeReader(BundleStore& store)
    : store_(store), buffers_(static_cast<size_t>(store.plan().range_buffers)) {
  const auto range_neurons = static_cast<uint64_t>(store.plan().range_neurons);
  const uint64_t stride = store.source().layout.stride;
  // Whole pieces, and the shorter ones between runs that the cache has.
  const auto neurons = static_cast<uint64_t>(store.source().neurons);
  const uint64_t reads =
      range_neurons * stride / StreamPlan::MostReadBytes(stride) + 1 +
      std::min(range_neurons, neurons / static_cast<uint64_t>(ShortestRun(stride) + 1) + 1);
  queue_ = store.file().OpenQueue(
      {.depth = StreamPlan::kRangeQueueDepth,
       .capacity = std::max<size_t>(reads * buffers_.size(), StreamPlan::kRangeQueueDepth)});
  const std::array slots = {store.SpareSlots()};
  queue_->RegisterBuffers(slots);
  requests_.reserve(reads);
  for (size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i].bundles = store.RangeBuffer(static_cast<int64_t>(i)).data();
    buffers_[i].spare_slot = store.spare_slot() + static_cast<int32_t>(i * range_neurons);
    buffers_[i].spare_slots = static_cast<int32_t>(range_neurons);
    buffers_[i].slots.reserve(neurons);
  }
}

// After `count` neurons; nowhere after the last FFN that is known to follow.
RangeReader::Place RangeReader::Next(Place place, int64_t count) const {
  const BundleSource& source = store_.source();
  place.neuron += count;
  if (place.neuron < prefix_.value_or(source.neurons)) return place;
  if (prefix_ || source.num_experts > 1) return {-1, 0};
  const bool is_last = place.ffn + 1 == source.num_ffns();
  if (is_last && (!another_follows_ || place.ffn == 0)) return {-1, 0};
  return {is_last ? 0 : place.ffn + 1, store_.plan().pinned_neurons};
}

void RangeReader::Begin(int64_t ffn, int64_t neuron, bool in_slots) {
  const Place wanted = {ffn, neuron};
  if (filled_ == 0 || in_order_ != wanted || in_slots_ != in_slots) {
    const std::optional<int64_t> prefix = prefix_;
    Stop();
    prefix_ = prefix;
    in_order_ = to_read_ = wanted;
    in_slots_ = in_slots;
  }
  ReadAhead();
}

void RangeReader::ReadAhead() {
  while (filled_ < buffers_.size() && to_read_.ffn >= 0) {
    const size_t buffer = (oldest_ + filled_) % buffers_.size();
    Range& range = buffers_[buffer];
    range.ffn = to_read_.ffn;
    range.first = to_read_.neuron;
    ChooseNeurons(range, prefix_.value_or(store_.source().neurons));
    range.error = 0;
    SubmitRange(buffer);
    ++filled_;
    to_read_ = Next(to_read_, range.count);
  }
}

// From range.first on, before `end`: as many as there are spare slots for, and where the others
// are.
void RangeReader::ChooseNeurons(Range& range, int64_t end) const {
  // Slots of halves are not whole bundles; while Fill reads a prefix slots hold nothing yet.
  const bool may_be_cached = !prefix_ && !store_.plan().holds_gates;
  const auto room = static_cast<size_t>(range.spare_slots);
  const auto left = static_cast<size_t>(end - range.first);
  const size_t most = in_slots_ ? left : std::min(room, left);
  constexpr int32_t kNone = -1;
  std::vector<int32_t>& slots = range.slots;
  slots.clear();
  for (size_t missing = 0; slots.size() < most && missing < room;) {
    const int64_t neuron = range.first + std::ssize(slots);
    slots.push_back(may_be_cached ? store_.CachedSlot(range.ffn, neuron) : kNone);
    missing += slots.back() < 0 ? 1 : 0;
  }
  const uint64_t stride = store_.source().layout.stride;
  const auto shortest = static_cast<size_t>(ShortestRun(stride));
  const auto of_pages = static_cast<size_t>(StreamPlan::PiecesOfPages(stride));
  size_t count = slots.size(), used = 0;
  const auto is_cached = [&](size_t i) { return slots[i] >= 0; };
  ForEachRun(slots.size(), is_cached, [&](size_t begin, size_t run_end, bool cached) {
    if (cached && run_end - begin == slots.size()) return;  // there is nothing to read at all
    // Reads fill whole pages, so a few cached neurons at the ends of a run are read too.
    const size_t kept = RoundUp(begin, of_pages), kept_end = run_end / of_pages * of_pages;
    const bool keeps = cached && kept + shortest <= kept_end;
    for (size_t i = begin; i < run_end; ++i) {
      if (keeps && i >= kept && i < kept_end) continue;
      if (used == room) count = std::min(count, i);
      slots[i] = range.spare_slot + static_cast<int32_t>(in_slots_ ? used : i);
      ++used;
    }
  });
  // Ranges begin with a batch of neurons; it has no more of them than there are spare slots.
  constexpr size_t kGrain = StreamPlan::kRangeGrain;
  if (count < left) count = count / kGrain * kGrain;
  slots.resize(count);
  range.count = static_cast<int64_t>(count);
}

void RangeReader::SubmitRange(size_t buffer) {
  Range& range = buffers_[buffer];
  const uint64_t offset = store_.FileOffset(range.ffn, range.first);
  const uint64_t stride = store_.source().layout.stride;
  const uint64_t piece = StreamPlan::MostReadBytes(stride);
  requests_.clear();
  ForEachRun(range, [&](size_t begin, size_t end, bool is_cached) {
    if (is_cached) return;
    std::byte* const data = range.bundles + static_cast<size_t>(range.PlaceOf(begin)) * stride;
    const uint64_t run = (end - begin) * stride;
    for (uint64_t at = 0; at < run; at += piece) {
      const uint64_t bytes = std::min<uint64_t>(piece, run - at);
      requests_.push_back({.offset = offset + begin * stride + at,
                           .data = data + at,
                           .bytes = static_cast<uint32_t>(bytes),
                           .tag = buffer});
      counts_.bytes_read += bytes;
    }
  });
  const size_t taken = requests_.empty() ? 0 : queue_->Submit(requests_);
  if (taken != requests_.size()) range.error = EAGAIN;
  range.pending = static_cast<int>(taken);
  counts_.reads += static_cast<int64_t>(taken);
}

void RangeReader::Collect(bool wait) noexcept {
  CollectPieces(*queue_, wait, [&](uint64_t tag) -> Range& { return buffers_[tag]; });
}

const RangeReader::Range& RangeReader::Take(Compute& compute) {
  Range& range = buffers_[oldest_];
  const Stopwatch watch;
  Collect(false);
  while (range.pending > 0) Collect(true);
  counts_.idle_seconds += watch.Seconds() * compute.threads();
  if (range.error != 0) store_.ThrowReadError(range.error);
  ForEachRun(range, [&](size_t begin, size_t end, bool is_cached) {
    (is_cached ? counts_.hits : counts_.misses) += static_cast<int64_t>(end - begin);
  });
  return range;
}

void RangeReader::Count(const Stopwatch& watch) {
  counts_.neurons += store_.source().neurons;
  counts_.pinned += store_.plan().pinned_neurons;
  counts_.wall_seconds += watch.Seconds();
}

// Checks those of neurons [begin, end) that were read; copies the others beside them, if asked.
void RangeReader::Complete(const kernels::KernelTable& table, const Range& range, int64_t begin,
                           int64_t end, bool copies) {
  const BundleLayout& layout = store_.source().layout;
  std::array<int32_t, kCheckGrain> rows, neurons;
  int64_t num_rows = 0;
  const auto check = [&] {
    const int64_t found = FindDamagedBundle(
        table, layout, {range.bundles, layout.stride, rows.data(), num_rows}, SlotPart::kAll);
    if (found >= 0) damaged_ = neurons[static_cast<size_t>(found)];
    num_rows = 0;
  };
  for (int64_t i = begin; i < end; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!range.IsCached(at)) {
      neurons[static_cast<size_t>(num_rows)] = static_cast<int32_t>(i);
      rows[static_cast<size_t>(num_rows++)] = range.PlaceOf(at);
      if (num_rows == kCheckGrain) check();
    } else if (copies) {
      std::memcpy(range.bundles + at * layout.stride, store_.Slots(range.slots[at], 1).data(),
                  layout.stride);
    }
  }
  if (num_rows > 0) check();
}

void RangeReader::CompleteAll(Compute& compute, const Range& range) {
  damaged_ = -1;
  compute.team().ParallelFor(range.count, kCheckGrain, [&](int64_t begin, int64_t end, int) {
    Complete(compute.kernels(), range, begin, end, !in_slots_);
  });
  ThrowIfDamaged(range);
}

void RangeReader::ThrowIfDamaged(const Range& range) const {
  if (damaged_ >= 0) store_.ThrowDamaged(range.ffn, range.first + damaged_);
}

// Where they are: in the buffer and the cache, or all in the buffer, where Complete copies them.
FfnNeurons RangeReader::RowsOf(const StreamedFfn& ffn, const Range& range) const {
  if (in_slots_) return BundleRows(store_).InSlots(ffn, range.slots);
  return BundleRows(store_).OfBundles(ffn, range.first, range.count, range.bundles);
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
