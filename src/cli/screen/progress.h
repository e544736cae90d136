// One line on stderr that shows how far long work is, with rate and time left. Silent where
// stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace hearth::cli {

// kShare: work that has no unit.
enum class ProgressUnit { kBytes, kTokens, kQuestions, kShare };

class ProgressLine {
 public:
  // `already`: what was done before, in an earlier run; the rate leaves it out.
  ProgressLine(std::string label, ProgressUnit unit, uint64_t already = 0);
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Redraws at most ten times a second. `note` is shown after the numbers; the time left is
  // guessed from the rate so far where the caller does not know it better.
  void Update(uint64_t done, uint64_t total, const std::string& note = "",
              std::optional<double> eta_seconds = {});
  // The same where only the share that is done is known, 0 to 1.
  void UpdateShare(double done, const std::string& note = "",
                   std::optional<double> eta_seconds = {});

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  ProgressUnit unit_;
  uint64_t already_;
  bool visible_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_draw_;
};

// "1:05" or "2:03:09".
std::string FormatDuration(double seconds);

}  // namespace hearth::cli
