// A persistent team of threads that runs one parallel section at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace hearth {

// The calling thread is worker 0. The others join a section when they get to run while it is open,
// so a section never waits for a thread that the system has not scheduled: on a busy machine the
// caller does all the work itself. Waiting workers first spin for a moment, then sleep, so that
// back-to-back sections start in microseconds and an idle team costs nothing.
// One caller at a time; a section must not start another on the same team.
class WorkerTeam {
 public:
  // num_threads >= 1, the calling thread included. Throws Error(kInvalidArgument) outside 1..1024
  // and Error(kIo) where the system cannot start that many.
  explicit WorkerTeam(int num_threads);
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
  // (the last one may be shorter), handed out as workers become free.
  template <typename F>
  void ParallelFor(int64_t count, int64_t grain, F&& fn) {
    if (count <= 0) return;
    const int64_t blocks = (count + grain - 1) / grain;
    if (blocks == 1 || size() == 1) {
      fn(int64_t{0}, count, 0);
      return;
    }
    // A few ranges per worker: enough to even out unequal cores, few enough to cost nothing.
    const int64_t range = (blocks + size() * kRangesPerWorker - 1) / (size() * kRangesPerWorker);
    std::atomic<int64_t> next{0};
    Run([&](int worker) {
      for (;;) {
        const int64_t first = next.fetch_add(range, std::memory_order_relaxed);
        if (first >= blocks) return;
        const int64_t begin = first * grain;
        const int64_t end = first + range >= blocks ? count : (first + range) * grain;
        fn(begin, end, worker);
      }
    });
  }

 private:
  using SectionFn = void (*)(void* context, int worker);
  static constexpr int64_t kRangesPerWorker = 4;

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
  std::vector<std::thread> threads_;
};

}  // namespace hearth
