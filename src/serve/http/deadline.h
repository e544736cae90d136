// A time by which something must have happened. Only the last one that was set counts.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <utility>

namespace hearth::serve {

// Used on the thread of its executor. Lives until its callbacks have run or been dropped: they keep
// what owns it alive.
class Deadline {
 public:
  explicit Deadline(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  // on_passed() is called after `time`, unless the deadline is set again, lifted or stopped before,
  // even where the timer has run out already.
  template <typename OnPassed>
  void Set(std::chrono::milliseconds time, OnPassed on_passed) {
    has_passed_ = false;
    const uint64_t number = ++number_;
    timer_.expires_after(time);
    timer_.async_wait(
        [this, number, on_passed = std::move(on_passed)](boost::system::error_code error) {
          if (error || number != number_) return;
          has_passed_ = true;
          on_passed();
        });
  }
  // Whether the one that was set last has passed.
  bool has_passed() const { return has_passed_; }
  void Lift() { ++number_; }
  // Lifts it, and ends the timer: the callback is dropped soon.
  void Stop() {
    Lift();
    timer_.cancel();
  }

 private:
  boost::asio::steady_timer timer_;
  uint64_t number_ = 0;  // of the deadline in force
  bool has_passed_ = false;
};

}  // namespace hearth::serve
