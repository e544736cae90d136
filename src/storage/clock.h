// Time as decorators of files see it, so that tests can bring their own.
#pragma once

#include <cstdint>

namespace hearth {

// Thread-safe. Nanoseconds since some moment, never less than before.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() const noexcept = 0;
  // Returns at that time or later, as little later as it can.
  virtual void SleepUntilNs(int64_t time_ns) const noexcept = 0;
};

// The system's monotonic clock. It sleeps where there is time for that and spins to the end, so
// that a wait of some microseconds is not stretched by the system's timers.
const Clock& SteadyClock();

}  // namespace hearth
