// Whether other programs take turns with this one's threads: what counts is nearness to the slower
// of computing and reading, also while they hold the processors.
//
// A thread that looks for work all the time uses its turn up, and is taken off its processor just
// when some arrives: then waiting asleep is faster. How long threads were ready to run and did not,
// the system knows (base/run_delay.h); every few milliseconds they ask it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "base/run_delay.h"

namespace hearth {

struct ProcessorShareOptions {
  std::function<std::optional<double>()> run_delay = ThreadRunDelaySeconds;
  double look_seconds = 0.02;  // between two looks
};

// A job here is what one FFN computes of a token or a batch. One job at a time.
class ProcessorShare {
 public:
  // Of the threads' time that they waited for a processor: from the first share on they are to
  // wait asleep, below the second one no longer.
  static constexpr double kLoadedShare = 0.1;
  static constexpr double kCalmShare = 0.04;

  explicit ProcessorShare(const ProcessorShareOptions& options) : options_(options) {}

  // Whether threads wait asleep in the next job.
  bool is_loaded() const { return is_loaded_; }

  // By one thread, before those that will do the job. now_seconds: of any clock.
  void BeginJob(int threads, double now_seconds) {
    passed_ = now_seconds - looked_seconds_;
    is_looking_ = passed_ >= options_.look_seconds;
    if (!is_looking_) return;
    looked_seconds_ = now_seconds;
    delays_.resize(static_cast<size_t>(threads));
  }

  // By each thread within the job; `worker` is its number. Threads may do so at the same time.
  void Look(int worker) {
    if (!is_looking_) return;
    Delay& delay = delays_[static_cast<size_t>(worker)];
    const std::optional<double> now = options_.run_delay();
    // A first look, or another thread than last time, says nothing yet.
    delay.grown = now && delay.last && *now >= *delay.last ? *now - *delay.last : 0;
    delay.last = now;
  }

  // By one thread, after all others are done.
  void EndJob() {
    if (!is_looking_) return;
    double grown = 0;
    for (const Delay& delay : delays_) grown += delay.grown;
    const double share = is_loaded_ ? kCalmShare : kLoadedShare;
    is_loaded_ = grown > share * passed_ * static_cast<double>(delays_.size());
  }

 private:
  struct Delay {
    std::optional<double> last;
    double grown = 0;
  };
  ProcessorShareOptions options_;
  std::vector<Delay> delays_;  // by worker
  double looked_seconds_ = 0;  // when
  double passed_ = 0;          // since the look before
  bool is_looking_ = false;    // in this job
  bool is_loaded_ = false;
};

}  // namespace hearth
