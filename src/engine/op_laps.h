// Where the time of a forward pass goes.
#pragma once

#include <array>
#include <chrono>

#include "engine/forward_op.h"

namespace hearth {

using OpSeconds = std::array<double, kNumForwardOps>;

// A stopwatch with laps: each ends where its op is done, so that all time of a pass is somewhere.
// Costs a branch per lap while nothing is recorded.
class OpLaps {
 public:
  // Adds laps to `seconds` from now on, which must live as long; null records nothing.
  void Record(OpSeconds* seconds) { seconds_ = seconds; }

  void Start() {
    if (seconds_ != nullptr) last_ = Clock::now();
  }
  void Lap(ForwardOp op) {
    if (seconds_ == nullptr) return;
    const Clock::time_point now = Clock::now();
    (*seconds_)[static_cast<size_t>(op)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;

  OpSeconds* seconds_ = nullptr;
  Clock::time_point last_;
};

}  // namespace hearth
