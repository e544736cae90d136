// Sequential reads of FFNs, ahead of whoever computes them (P2 §4.1.1).
//
// An FFN is given out as ranges of neurons in ascending order: first what is pinned, then the rest
// through the spare slots of the store, one range of them while the next ones are being read. Runs
// of neurons that the cache has are not read: they are copied, or used where they are; then they
// take no spare slot, and a range is as long as what it lacks of the cache fits. Where the
// model has one FFN per layer, reading goes on into the next layer, so that it overlaps with
// attention too, and from the last one into the next token's first, where one follows. Ranges are
// whole bundles also where gates are in memory: a disk reads one long run faster than two thirds of
// it in pieces.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/stopwatch.h"
#include "ops/compute.h"
#include "pipeline/bundle_rows.h"
#include "pipeline/bundle_store.h"
#include "pipeline/stream_counts.h"
#include "storage/async/async_reader.h"

namespace hearth {

// Which rows a visitor of ranges takes: rows in order, to which cached neurons are copied, or rows
// wherever they lie, if the weight type allows it.
enum class RangeRows : uint8_t { kInOrder, kAnywhere };

// One thread at a time.
class RangeReader {
 public:
  // Opens a queue. `store` must outlive the reader.
  explicit RangeReader(BundleStore& store);

  // Calls visit(first_neuron, neurons) for the ranges of one FFN, in order, with rows as `which`
  // says, that stay valid during the call. Checks of what was read are verified with all threads.
  // Throws Error(kIo) and Error(kCorrupt), and what `visit` throws; nothing is in flight then. The
  // cache must not change between two calls without a Stop.
  template <typename Visit>
  void ForEachRange(Compute& compute, const StreamedFfn& ffn, RangeRows which, Visit&& visit) {
    const bool in_slots = which == RangeRows::kAnywhere && BundleRows(store_).computes_in_slots();
    ForEach(compute, ffn, in_slots, [&](const Range* range) {
      if (range == nullptr) return visit(int64_t{0}, BundleRows(store_).OfPinned(ffn));
      CompleteAll(compute, *range);
      visit(range->first, RowsOf(ffn, *range));
    });
  }

  // The same for who reads many neurons at a time on each thread: visit(first_neuron, rows, arrive)
  // calls (*arrive)(begin, count) before it reads rows of neurons begin to begin + count of a
  // range, so that what is verified is in a cache of that thread. Each time the calling thread
  // does, it also gives the system what else is to be read. What was computed of a damaged neuron
  // is thrown away with the Error(kCorrupt) after `visit`.
  template <typename Visit>
  void ForEachArriving(Compute& compute, const StreamedFfn& ffn, Visit&& visit) {
    const auto caller = std::this_thread::get_id();
    const auto read_on = [this, caller] {
      if (std::this_thread::get_id() == caller) Collect(false);
    };
    ForEach(compute, ffn, BundleRows(store_).computes_in_slots(), [&](const Range* range) {
      if (range == nullptr) {
        const NeuronsArrive arrive = [&](int64_t, int64_t) { read_on(); };
        return visit(int64_t{0}, BundleRows(store_).OfPinned(ffn), &arrive);
      }
      damaged_ = -1;
      const NeuronsArrive arrive = [&](int64_t begin, int64_t count) {
        read_on();
        Complete(compute.kernels(), *range, begin, begin + count, !in_slots_);
      };
      visit(range->first, RowsOf(ffn, *range), &arrive);
      ThrowIfDamaged(*range);
    });
  }

  // Reads neurons [0, end) of an FFN; visit(first_neuron, bundles, count) copies them elsewhere.
  template <typename Visit>
  void ReadPrefix(Compute& compute, int64_t ffn, int64_t end, Visit&& visit) {
    try {
      prefix_ = end;
      Begin(ffn, 0, false);
      while (in_order_.ffn == ffn && in_order_.neuron < end) {
        const Range& range = Take(compute);
        CompleteAll(compute, range);
        visit(range.first, range.bundles, range.count);
        Recycle();
      }
    } catch (...) {
      Stop();
      throw;
    }
    Stop();
    counts_ = {};
  }

  // Call at the beginning of a pass: whether another pass over all FFNs will follow it.
  void ExpectAnother(bool does_follow) { another_follows_ = does_follow; }

  // Ends what is in flight, so that the spare slots are free for others.
  void Stop() noexcept;

  // What ForEachRange did since the last ReadPrefix. Its neurons are all of an FFN each time,
  // however many tokens need them.
  const StreamCounts& counts() const { return counts_; }

 private:
  struct Range {
    int64_t ffn = 0;
    int64_t first = 0;
    int64_t count = 0;
    std::byte* bundles = nullptr;
    // Of its buffer. Where slots are halves of bundles, these numbers are no slots.
    int32_t spare_slot = 0;
    int32_t spare_slots = 0;
    std::vector<int32_t> slots;  // of each neuron: the cache's, or the spare one that it is read to
    int pending = 0;             // reads
    int error = 0;

    // Of its buffer, in neurons, where neuron i was read to.
    int32_t PlaceOf(size_t i) const { return slots[i] - spare_slot; }
    bool IsCached(size_t i) const { return PlaceOf(i) < 0 || PlaceOf(i) >= spare_slots; }
  };
  struct Place {
    int64_t ffn = -1;
    int64_t neuron = 0;
    bool operator==(const Place&) const = default;
  };

  // Calls visit with null for what is pinned, then with every range; in_slots: whether it uses what
  // is cached where it is.
  template <typename Visit>
  void ForEach(Compute& compute, const StreamedFfn& ffn, bool in_slots, Visit&& visit) {
    const int64_t index = store_.FfnIndex(ffn.layer, ffn.expert);
    const int64_t pinned = store_.plan().pinned_neurons;
    const Stopwatch watch;
    try {
      if (pinned < store_.source().neurons) Begin(index, pinned, in_slots);
      if (pinned > 0) visit(nullptr);
      while (in_order_.ffn == index) {
        visit(&Take(compute));
        Recycle();
      }
    } catch (...) {
      Stop();
      throw;
    }
    Count(watch);
  }

  void Begin(int64_t ffn, int64_t neuron, bool in_slots);
  const Range& Take(Compute& compute);
  void Recycle();
  void ReadAhead();
  void SubmitRange(size_t buffer);
  void ChooseNeurons(Range& range, int64_t end) const;
  void Collect(bool wait) noexcept;
  void Count(const Stopwatch& watch);
  void Complete(const kernels::KernelTable& table, const Range& range, int64_t begin, int64_t end,
                bool copies);
  void CompleteAll(Compute& compute, const Range& range);
  void ThrowIfDamaged(const Range& range) const;
  FfnNeurons RowsOf(const StreamedFfn& ffn, const Range& range) const;
  Place Next(Place place, int64_t count) const;

  BundleStore& store_;
  std::unique_ptr<ReadQueue> queue_;
  std::vector<Range> buffers_;  // a ring
  std::vector<ReadRequest> requests_;
  size_t oldest_ = 0;                 // the range to be taken next
  size_t filled_ = 0;                 // ranges that are read or being read, from oldest_ on
  Place in_order_;                    // where the oldest range begins
  Place to_read_;                     // where the next read begins; ffn -1: nowhere
  std::optional<int64_t> prefix_;     // neurons of an FFN that are wanted; nothing: all of all FFNs
  bool another_follows_ = false;      // a pass over all FFNs
  bool in_slots_ = false;             // whether what is cached takes no spare slots
  std::atomic<int64_t> damaged_{-1};  // a neuron of the range that was taken
  StreamCounts counts_;
};

}  // namespace hearth
