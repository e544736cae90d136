// Whether other programs take turns with this one's threads (DESIGN: what counts is nearness to the
// slower of computing and reading, also while other programs hold the processors).
//
// A thread that looks for work all the time and does not get to run for a while has lost its
// processor. One such gap says little: a hypervisor, an interrupt or a daemon makes some on a calm
// machine. So what counts is the share of the time that is lost, as a bucket counts that leaks.
//
// While processors are shared, waiting asleep loses less than looking. Nothing can be seen then, so
// threads look again after a while: at first soon, later more rarely as long as they find the same.
#pragma once

#include <algorithm>

namespace hearth {

struct ProcessorLossLimits {
  // A thread that looks for work and does not get to run for so long has lost its processor.
  double gap_seconds = 5e-4;
  // So much lost beyond what is calm is a load: a turn of another program or two.
  double load_seconds = 3e-3;
};

// One thread at a time. Its unit is the list: what one FFN computes of a token or a batch.
class ProcessorLoss {
 public:
  // Of the time of all threads, what may be lost without consequences.
  static constexpr double kCalmShare = 0.1;
  static constexpr int kFewestAsleep = 256;
  static constexpr int kMostAsleep = 8192;
  // A load that is seen within so many lists of waking is still the same.
  static constexpr int kSoon = 128;

  explicit ProcessorLoss(const ProcessorLossLimits& limits) : limits_(limits) {}

  const ProcessorLossLimits& limits() const { return limits_; }
  // Whether threads wait asleep for the next list.
  bool is_asleep() const { return asleep_ > 0; }

  // After each list: how long it took, and how much of that threads lost while they looked for
  // work, in seconds of a thread, both summed over the threads.
  void Add(double thread_seconds, double lost_seconds) {
    if (asleep_ > 0) {
      --asleep_;
      return;
    }
    ++awake_;
    level_ = std::max(0.0, level_ + lost_seconds - kCalmShare * thread_seconds);
    if (awake_ > kSoon) next_ = kFewestAsleep;
    if (level_ <= limits_.load_seconds) return;
    asleep_ = next_;
    next_ = std::min(2 * next_, kMostAsleep);
    awake_ = 0;
    level_ = 0;
  }

 private:
  ProcessorLossLimits limits_;
  double level_ = 0;  // seconds lost beyond what is calm
  int asleep_ = 0;    // lists left
  int awake_ = 0;     // lists since
  int next_ = kFewestAsleep;
};

}  // namespace hearth
