#include "storage/clock.h"

#include <chrono>
#include <thread>

namespace hearth {
namespace {

// How late the system may wake a sleeper: its timers have a slack of 50 microseconds.
constexpr int64_t kLateNs = 120'000;

class Steady final : public Clock {
 public:
  int64_t NowNs() const noexcept override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }

  void SleepUntilNs(int64_t time_ns) const noexcept override {
    const int64_t left = time_ns - NowNs();
    if (left > kLateNs) std::this_thread::sleep_for(std::chrono::nanoseconds(left - kLateNs));
    while (NowNs() < time_ns) {
    }
  }
};

}  // namespace

const Clock& SteadyClock() {
  static const Steady clock;
  return clock;
}

}  // namespace hearth
