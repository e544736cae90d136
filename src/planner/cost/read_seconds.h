// How long reads from storage take, with the speeds of a measured machine: the part of the cost
// model (planner/cost/cost_model.h) that every strategy of reading shares.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cost/cost_model.h"

namespace hearth {

// 0 for a rate that is not known.
inline double Over(double amount, double per_second) {
  return per_second > 0 ? amount / per_second : 0;
}

// Seconds that reads take which would take `alone` seconds on an idle machine, if threads stream
// from memory for the first `busy` seconds and leave storage `share` of its speed meanwhile.
double SecondsBeside(double share, double alone, double busy);

// Of FFNs that are read in order, or by expert: so many bytes, beside nothing.
double SequentialSeconds(const CostInputs& in, double bytes);
// What was read of matrices is laid out anew before it is multiplied: memory reads it and takes it
// in again. Processor time of the reads with it.
double UnpackSeconds(const CostInputs& in, double bytes);
// The processor time of those reads alone, on each of the threads.
double SequentialReadCpuSeconds(const CostInputs& in, double bytes);

// Of single neurons: seconds until the last of so many reads of one size is there that are given to
// the system together: straight lines between the measured numbers, and after the largest of them
// that may be in flight at once at the rate with so many.
class ReadClock {
 public:
  ReadClock() = default;
  // All of them from one range of the file.
  ReadClock(const HardwareProfile& hardware, uint64_t bytes, uint64_t range_bytes, int queue_depth);

  // Where they have so many bytes more, all together, because some are longer.
  double Seconds(double reads, double more_bytes) const {
    return SecondsOfEqual(reads) + more_bytes * byte_;
  }

 private:
  struct Point {
    double reads, seconds;
  };

  double SecondsOfEqual(double reads) const;

  std::vector<Point> points_ = {{0, 0}};
  double further_ = 0;  // of one more
  double byte_ = 0;     // of a longer one
};

}  // namespace hearth
