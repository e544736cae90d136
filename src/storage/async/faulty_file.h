// A file whose reads fail as a script says: for tests of what reads from it.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

#include "storage/async/file_decorator.h"
#include "storage/clock.h"

namespace hearth {

enum class FaultKind {
  kError,      // the read completes with `error`; its data is overwritten with 0xa5
  kShortRead,  // the first `byte` bytes arrive, the rest is 0xa5; completes with EIO
  kDelay,      // the read completes delay_ns later than it would
  kFlip,       // `mask` is added (exclusive or) to the byte at `byte` modulo the read's size
};

// What happens to reads [nth_read, nth_read + reads), counted from 0 over all queues of the file in
// the order in which they are issued.
struct Fault {
  FaultKind kind = FaultKind::kError;
  uint64_t nth_read = 0;
  uint64_t reads = 1;
  int error = EIO;
  uint64_t byte = 0;
  uint8_t mask = 1;  // not 0
  int64_t delay_ns = 0;
};

// Several faults may meet in one read; they apply in order.
using FaultScript = std::vector<Fault>;

// How often each kind of fault happens, as shares of all reads.
struct FaultRates {
  double error = 0;
  double short_read = 0;
  double delay = 0;
  double flip = 0;
  int64_t max_delay_ns = 0;
};

// Faults of the first `reads` reads, drawn from the seed. Errors are EIO, ENXIO or ETIMEDOUT.
FaultScript RandomFaultScript(uint64_t seed, uint64_t reads, const FaultRates& rates);

// How many reads have been issued, and to how many something happened.
struct FaultCounts {
  uint64_t reads = 0;
  uint64_t faults = 0;
};

class FaultyFile final : public FileDecorator {
 public:
  // `clock`: null stands for SteadyClock(); must outlive the file. Throws Error(kInvalidArgument)
  // for a script that makes no sense: an error below 1, a mask of 0, a negative delay.
  FaultyFile(std::unique_ptr<AsyncFile> inner, FaultScript script, const Clock* clock = nullptr);

  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) override;
  FaultCounts counts() const noexcept { return {reads_.load(), faults_.load()}; }

 private:
  class Queue;

  // Calls fn(fault) for every fault of the nth read, in order.
  template <typename Fn>
  void ForFaults(uint64_t nth, Fn fn) const noexcept;

  const Clock& clock_;
  FaultScript script_;       // by first read
  uint64_t most_reads_ = 0;  // of any fault
  std::atomic<uint64_t> reads_ = 0;
  std::atomic<uint64_t> faults_ = 0;
};

}  // namespace hearth
