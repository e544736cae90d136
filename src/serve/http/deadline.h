// A point in time by which something must have happened, of which the last one set counts.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <utility>

namespace hearth::serve {

// One thread. Must live until its callbacks have run or been dropped: they hold what owns it.
class Deadline {
 public:
  explicit Deadline(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  // on_passed() is called after `time`, unless the deadline is set again or lifted before.
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
  // No timer runs any more.
  void Stop() {
    ++number_;
    timer_.cancel();
  }

 private:
  boost::asio::steady_timer timer_;
  uint64_t number_ = 0;  // of the deadline in force
  bool has_passed_ = false;
};

}  // namespace hearth::serve
