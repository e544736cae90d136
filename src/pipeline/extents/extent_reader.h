// Reads extents in the order in which they are asked for, some of them ahead of whoever takes them.
// Storage does not serve reads in order, so that of some that are wanted the first that has come
// can be taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "pipeline/extents/extent_map.h"
#include "storage/async/async_reader.h"
#include "storage/async/piece_reads.h"

namespace hearth {

// One thread at a time.
class ExtentReader {
 public:
  // Charges ChargedBytes to `budget` as "read buffers". `map` and the files, one for each part of a
  // split set, must outlive the reader. Throws Error(kOutOfBudget), Error(kUnsupported) where a
  // file's direct reads want a larger alignment than ExtentMap::kReadAlignment.
  ExtentReader(Budget& budget, const ExtentMap& map,
               std::span<const std::unique_ptr<AsyncFile>> files, int64_t num_buffers);
  static uint64_t ChargedBytes(const ExtentMap& map, int64_t num_buffers);

  // Extents that may be asked for and not taken yet.
  int64_t capacity() const { return static_cast<int64_t>(asked_.size()); }
  int64_t num_asked() const { return static_cast<int64_t>(num_reads_ + num_waiting_); }

  // `key` of the map is wanted, after all others that were asked for.
  void Ask(int32_t key);

  struct Taken {
    int32_t key = 0;
    std::span<const std::byte> stored;
  };
  // Of the `among` >= 1 extents that were asked for first one that is there; waits for one. Its
  // bytes are valid until Done, which comes before another is taken. Throws Error(kIo); Stop then.
  Taken TakeAnyOf(int64_t among);
  // The one that was asked for first.
  std::span<const std::byte> Take() { return TakeAnyOf(1).stored; }
  // What was taken is not needed any more.
  void Done();
  // Forgets all that was asked for. Nothing is in flight then.
  void Stop() noexcept;

  uint64_t bytes_read() const { return bytes_read_; }
  double wait_seconds() const { return wait_seconds_; }  // in Take

 private:
  struct Read {
    int32_t key = 0;
    uint64_t bytes = 0;  // of the extent
    size_t part = 0;
    PieceReads pieces;
  };

  std::byte* BufferOf(size_t read) { return memory_.data() + read * buffer_bytes_; }
  void ReadAhead();
  void Submit(size_t read, int32_t key);
  void Collect(size_t part, bool wait) noexcept;
  size_t FirstThereOf(size_t among) const;

  const ExtentMap& map_;
  std::span<const std::unique_ptr<AsyncFile>> files_;
  uint64_t buffer_bytes_ = 0;
  Buffer memory_;  // before the queues: they write to it until they end
  std::vector<std::unique_ptr<ReadQueue>> queues_;  // of the files
  std::vector<Read> reads_;                         // a buffer each
  // Reads by number: those under way or arrived, in the order in which they were asked for, then
  // those that are free.
  std::vector<size_t> order_;
  size_t num_reads_ = 0;        // of them, that are not free
  size_t taken_ = 0;            // place in order_
  std::vector<int32_t> asked_;  // a ring of keys that are not being read yet
  size_t oldest_asked_ = 0;
  size_t num_waiting_ = 0;
  uint64_t bytes_read_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace hearth
