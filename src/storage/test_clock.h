// A clock that stands still until somebody sleeps or moves it. For tests.
#pragma once

#include <algorithm>
#include <atomic>

#include "storage/clock.h"

namespace hearth {

class FakeClock final : public Clock {
 public:
  int64_t NowNs() const noexcept override { return now_ns_.load(); }
  void SleepUntilNs(int64_t time_ns) const noexcept override {
    int64_t now = now_ns_.load();
    while (now < time_ns && !now_ns_.compare_exchange_weak(now, time_ns)) {
    }
  }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  mutable std::atomic<int64_t> now_ns_ = 1'000'000'000;
};

}  // namespace hearth
