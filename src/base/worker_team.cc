#include "base/worker_team.h"

#include "base/error.h"

namespace hearth {
namespace {

// Rounds of polling before a waiting thread sleeps: some tens of microseconds, longer than the
// gap between two operations of a token, shorter than anything a user would notice as load.
constexpr int kSpinRounds = 4000;
constexpr int kMaxThreads = 1024;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits until `value` differs from `old`; spins first.
template <typename T>
void AwaitChange(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpinRounds; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (value.load(std::memory_order_acquire) == old) {
    value.wait(old, std::memory_order_acquire);
  }
}

}  // namespace

WorkerTeam::WorkerTeam(int num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument, "--threads", "number of threads", "1 to 1024",
                std::to_string(num_threads));
  }
  threads_.reserve(static_cast<size_t>(num_threads) - 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    threads_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

WorkerTeam::~WorkerTeam() {
  stop_.store(true, std::memory_order_relaxed);
  section_.fetch_add(1, std::memory_order_release);
  section_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::RunErased(SectionFn fn, void* context) {
  if (threads_.empty()) {
    fn(context, 0);
    return;
  }
  fn_ = fn;
  context_ = context;
  pending_.store(static_cast<int32_t>(threads_.size()), std::memory_order_relaxed);
  section_.fetch_add(1, std::memory_order_release);
  section_.notify_all();
  fn(context, 0);
  for (int32_t left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire)) {
    AwaitChange(pending_, left);
  }
}

void WorkerTeam::WorkerLoop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    AwaitChange(section_, seen);
    seen = section_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    fn_(context_, worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace hearth
