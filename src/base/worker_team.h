// A persistent team of threads that runs one parallel section at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace hearth {

// The calling thread is worker 0; the others wait, first spinning for a moment, then asleep, so
// that back-to-back sections start in microseconds and an idle team costs nothing.
// One caller at a time; a section must not start another on the same team.
class WorkerTeam {
 public:
  // num_threads >= 1, the calling thread included. Throws Error(kInvalidArgument) outside 1..1024.
  explicit WorkerTeam(int num_threads);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls fn(worker) once on every worker, worker in [0, size()), and returns when all are done.
  // fn must not throw. What it wrote is visible to the caller afterwards.
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

  // A section is published by raising section_; a worker that has finished lowers pending_.
  std::atomic<uint32_t> section_{0};
  std::atomic<int32_t> pending_{0};
  std::atomic<bool> stop_{false};
  SectionFn fn_ = nullptr;   // written before section_ is raised
  void* context_ = nullptr;  // likewise
  std::vector<std::thread> threads_;
};

}  // namespace hearth
