// Tells whether other programs take processor time from this one's threads.
//
// A thread that spins for work uses up its time slice, and then loses its processor just when work
// arrives; on a loaded machine, waiting asleep is faster. Every look_seconds the threads ask the
// system how long they were ready to run and did not (base/run_delay.h).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/run_delay.h"

namespace hearth {

struct ProcessorShareOptions {
  std::function<std::optional<double>()> run_delay = ThreadRunDelaySeconds;
  double look_seconds = 0.02;  // between two looks
};

// A job here is one list of neurons that all threads compute together. One job at a time.
class ProcessorShare {
 public:
  // Shares of the threads' time that they waited for a processor. Above the first they wait asleep
  // from the next job on; at or below the second they stop doing so.
  static constexpr double kLoadedShare = 0.1;
  static constexpr double kCalmShare = 0.04;

  explicit ProcessorShare(ProcessorShareOptions options) : options_(std::move(options)) {}

  // Whether threads are to wait asleep in the next job.
  bool is_loaded() const { return is_loaded_; }

  // One thread calls this before the job's threads begin. now_seconds: of any steady clock.
  void BeginJob(int threads, double now_seconds) {
    passed_ = now_seconds - looked_seconds_;
    is_looking_ = passed_ >= options_.look_seconds;
    if (!is_looking_) return;
    looked_seconds_ = now_seconds;
    delays_.resize(static_cast<size_t>(threads));
  }

  // Each thread of the job calls this with its number, at the same time as others or not.
  void Look(int worker) {
    if (!is_looking_) return;
    Delay& delay = delays_[static_cast<size_t>(worker)];
    const std::optional<double> now = options_.run_delay();
    // The first look says nothing, nor one by another thread than last time.
    delay.grown = now && delay.last && *now >= *delay.last ? *now - *delay.last : 0;
    delay.last = now;
  }

  // One thread calls this after all threads are done.
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
  double looked_seconds_ = 0;  // time of the last look
  double passed_ = 0;          // since the look before
  bool is_looking_ = false;    // in this job
  bool is_loaded_ = false;
};

}  // namespace hearth
