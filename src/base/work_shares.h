// How the ranges of a parallel section are handed out (MNN §5.2): every worker begins with a
// contiguous share in proportion to its measured speed and takes from its front; who has finished
// takes from the back of whoever has most left. Pieces get smaller toward the end, so that no
// worker waits long for another one's last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace hearth {

// Units [begin, end) of a section.
struct WorkRange {
  int64_t begin;
  int64_t end;
};

// Deal and UpdateSpeeds are called by one thread while no worker takes; Take by each worker for
// itself, concurrently.
class WorkShares {
 public:
  static constexpr int64_t kMaxUnits = int64_t{1} << 31;

  explicit WorkShares(int workers);

  // Starts a section of `units` < kMaxUnits.
  void Deal(int64_t units);

  // The next piece for `worker`, or nothing when all units are taken.
  std::optional<WorkRange> Take(int worker);

  // A worker reports what it did in the section: units, and nanoseconds from start to finish.
  void Report(int worker, int64_t units, int64_t ns);

  // Moves the speeds toward what was reported in this section, if it was long enough to tell.
  void UpdateSpeeds();

  // Speed of a worker; their mean is about 1.
  double speed(int worker) const { return speeds_[static_cast<size_t>(worker)]; }

 private:
  // One cache line per worker, so that taking from one's own share disturbs nobody.
  struct alignas(64) Share {
    std::atomic<uint64_t> range{0};  // first unit left in the upper half, end in the lower
    int64_t units_done = 0;          // written by the worker, read after the section
    int64_t ns = 0;
  };

  std::optional<WorkRange> TakeFront(Share& share);
  std::optional<WorkRange> TakeBack(Share& share);

  int workers_;
  std::unique_ptr<Share[]> shares_;
  std::vector<double> speeds_;
};

}  // namespace hearth
