// One line on stderr that shows how far long work is, with rate and time left. Silent where
// stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace hearth::cli {

enum class ProgressUnit { kBytes, kTokens };

class ProgressLine {
 public:
  ProgressLine(std::string label, ProgressUnit unit);
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Redraws at most ten times a second. `note` is shown behind the numbers.
  void Update(uint64_t done, uint64_t total, const std::string& note = "");

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  ProgressUnit unit_;
  bool visible_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_draw_;
};

// "1:05" or "2:03:09".
std::string FormatDuration(double seconds);

}  // namespace hearth::cli
