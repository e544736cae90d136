// Counts what is read from a file, and the time that its readers spend on that.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "storage/async/file_decorator.h"
#include "storage/clock.h"

namespace hearth {

// Sums over all queues of a file since it was opened. Differences of two are those of the time in
// between.
struct ReadCounts {
  uint64_t reads = 0;   // submitted and taken
  uint64_t bytes = 0;   // of those
  uint64_t errors = 0;  // completions with an error
  // Reads by size: entry i counts those of 2^i to 2^(i+1) - 1 bytes; entry 0 also those of none.
  std::array<uint64_t, 32> reads_by_log2_bytes = {};
  // Time inside the calls, summed over threads.
  int64_t submit_ns = 0;
  int64_t poll_ns = 0;
  int64_t wait_ns = 0;
};

class CountingFile final : public FileDecorator {
 public:
  // `clock`: null stands for SteadyClock(); must outlive the file.
  explicit CountingFile(std::unique_ptr<AsyncFile> inner, const Clock* clock = nullptr);

  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) override;

  // Thread-safe; calls under way are counted in part.
  ReadCounts counts() const noexcept;

 private:
  class Queue;
  struct Sums {
    std::atomic<uint64_t> reads = 0;
    std::atomic<uint64_t> bytes = 0;
    std::atomic<uint64_t> errors = 0;
    std::array<std::atomic<uint64_t>, 32> reads_by_log2_bytes = {};
    std::atomic<int64_t> submit_ns = 0;
    std::atomic<int64_t> poll_ns = 0;
    std::atomic<int64_t> wait_ns = 0;
  };

  const Clock& clock_;
  Sums sums_;
};

}  // namespace hearth
