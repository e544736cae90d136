// A persistent team of threads that runs one parallel section at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "base/work_shares.h"

namespace hearth {

// The calling thread is worker 0. The others join a section when they get to run while it is open,
// so a section never waits for a thread that the system has not scheduled: on a busy machine the
// caller does all the work itself. Waiting workers first spin for a moment, then sleep, so that
// back-to-back sections start in microseconds and an idle team costs nothing.
// Where there is a processor for each, the others are pinned to one each and the caller is left to
// what remains. A worker that has to share its processor gives it up between sections, not when
// the system takes it away inside one, where everybody would wait for it.
// One caller at a time; a section must not start another on the same team.
class WorkerTeam {
 public:
  // num_threads >= 1, the calling thread included. caller_processor: the one that is left to the
  // caller, where this process may use it; otherwise the first. Throws Error(kInvalidArgument)
  // outside 1..1024 and Error(kIo) where the system cannot start that many.
  explicit WorkerTeam(int num_threads, std::optional<int> caller_processor = {});
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls fn(worker) on worker 0 and, at most once each, on those others that come before worker
  // 0's call returns; worker in [0, size()). Returns when all calls have. fn must not throw, and
  // each call must take work from a common supply until none is left, so that any number of
  // calls, even one, does it all. What they wrote is visible to the caller afterwards.
  template <typename F>
  void Run(F&& fn) {
    RunErased([](void* context, int worker) { (*static_cast<F*>(context))(worker); }, &fn);
  }

  // Calls fn(begin, end, worker) for ranges that cover [0, count), each a multiple of `grain` long
  // (the last one may be shorter), handed out by base/work_shares.h. count / grain is below 2^31.
  template <typename F>
  void ParallelFor(int64_t count, int64_t grain, F&& fn) {
    if (count <= 0) return;
    const int64_t units = (count + grain - 1) / grain;
    if (units == 1 || size() == 1) {
      fn(int64_t{0}, count, 0);
      return;
    }
    shares_.Deal(units);
    Run([&](int worker) {
      const auto start = std::chrono::steady_clock::now();
      int64_t done = 0;
      while (const auto range = shares_.Take(worker)) {
        fn(range->begin * grain, range->end == units ? count : range->end * grain, worker);
        done += range->end - range->begin;
      }
      const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - start;
      shares_.Report(worker, done, time.count());
    });
    shares_.UpdateSpeeds();
  }

  // Keeps the calling thread, worker 0, off the others' processors while it exists. Without it, one
  // that sleeps for reads was found on a worker's processor half of the time, both wanting to run
  // (docs/decisions/0009-slots-are-rows.md). Beside another program it cannot give way then. Does
  // nothing where workers may move.
  class CallerPin {
   public:
    explicit CallerPin(const WorkerTeam& team) noexcept;
    ~CallerPin();
    CallerPin(const CallerPin&) = delete;
    CallerPin& operator=(const CallerPin&) = delete;

   private:
    const WorkerTeam& team_;
    const bool is_pinned_;
  };

  // Measured speed of a worker in ParallelFor; the mean of all is about 1.
  double speed(int worker) const { return shares_.speed(worker); }

 private:
  using SectionFn = void (*)(void* context, int worker);

  void RunErased(SectionFn fn, void* context);
  void WorkerLoop(int worker);
  void Stop() noexcept;

  // One word holds a section's state, so that joining is a single compare-and-swap:
  //   bits 12..31 number of the section, bit 11 open to joining, bits 0..10 workers inside.
  // Closed (by the caller) -> open, 0 inside -> joined and left by workers -> closed; the caller
  // returns when it is closed with nobody inside.
  std::atomic<uint32_t> state_{0};
  std::atomic<bool> stop_{false};
  SectionFn fn_ = nullptr;   // written before section_ is raised
  void* context_ = nullptr;  // likewise
  WorkShares shares_;
  std::vector<std::thread> threads_;
  // By worker, where every one has its own: those that the thread which made the team might use.
  std::vector<int> processors_;
};

}  // namespace hearth
