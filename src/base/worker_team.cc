#include "base/worker_team.h"

#include <time.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"

namespace hearth {
namespace {

// Rounds of polling before a waiting thread sleeps: some tens of microseconds, longer than the
// gap between two operations of a token, shorter than anything a user would notice as load.
constexpr int kSpinRounds = 4000;
constexpr int kMaxThreads = 1024;

constexpr uint32_t kInsideMask = (1u << 11) - 1;
constexpr uint32_t kOpenBit = 1u << 11;
constexpr uint32_t kOneSection = 1u << 12;
static_assert(kMaxThreads <= kInsideMask);

uint32_t SectionOf(uint32_t state) { return state / kOneSection; }

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins until `word` differs from `old`; false where that takes too long.
bool SpinForChange(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int i = 0; i < kSpinRounds; ++i) {
    if (word.load(std::memory_order_acquire) != old) return true;
    Pause();
  }
  return false;
}

// Returns the value of `word` once it differs from `old`; spins first, then sleeps.
uint32_t AwaitChange(const std::atomic<uint32_t>& word, uint32_t old) {
  if (!SpinForChange(word, old)) word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

int64_t NowNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

// Tells whether this thread shares its processor with others that want to run, from how much of
// the time that it was awake it got.
class ContentionMeter {
 public:
  // Called often while the thread works or spins. True when it should give way now.
  bool ShouldYield() {
    const int64_t now = NowNs(CLOCK_MONOTONIC);
    if (wall_start_ == 0) return Restart(now), false;
    const int64_t wall = now - wall_start_;
    if (wall < kPeriodNs) return false;
    const int64_t processor = NowNs(CLOCK_THREAD_CPUTIME_ID) - processor_start_;
    contended_ = processor * 10 < wall * 9 || (contended_ && processor * 100 < wall * 98);
    Restart(now);
    return contended_;
  }
  // Called after sleeping of its own will.
  void Forget() { wall_start_ = 0; }

 private:
  // Less than the slice that a scheduler gives to a thread, more than it costs to look.
  static constexpr int64_t kPeriodNs = 1'000'000;

  void Restart(int64_t now) {
    wall_start_ = now;
    processor_start_ = NowNs(CLOCK_THREAD_CPUTIME_ID);
  }
  int64_t wall_start_ = 0;
  int64_t processor_start_ = 0;
  bool contended_ = false;
};

}  // namespace

WorkerTeam::WorkerTeam(int num_threads, std::optional<int> caller_processor)
    : shares_(std::clamp(num_threads, 1, kMaxThreads)) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument, Field{"threads"}, "number of threads", "1 to 1024",
                std::to_string(num_threads));
  }
  threads_.reserve(static_cast<size_t>(num_threads) - 1);
  processors_ = AllowedCpus();
  if (caller_processor) {
    std::stable_partition(processors_.begin(), processors_.end(),
                          [&](int processor) { return processor == *caller_processor; });
  }
  if (std::ssize(processors_) < num_threads) processors_.clear();
  try {
    for (int worker = 1; worker < num_threads; ++worker) {
      const int processor = processors_.empty() ? -1 : processors_[static_cast<size_t>(worker)];
      threads_.emplace_back([this, worker, processor] {
        if (processor >= 0) PinThisThread(processor);  // a wish
        WorkerLoop(worker);
      });
    }
  } catch (const std::system_error& error) {
    const size_t started = threads_.size() + 1;
    Stop();
    throw Error(ErrorCode::kIo, Field{"threads"},
                "the system started only " + std::to_string(started) + " of " +
                    std::to_string(num_threads) + " threads: " + error.what());
  }
}

WorkerTeam::~WorkerTeam() { Stop(); }

WorkerTeam::CallerPin::CallerPin(const WorkerTeam& team) noexcept
    : team_(team),
      is_pinned_(team.size() > 1 && !team.processors_.empty() &&
                 PinThisThread(team.processors_.front())) {}

WorkerTeam::CallerPin::~CallerPin() {
  if (is_pinned_) UseCpus(team_.processors_);
}

void WorkerTeam::Stop() noexcept {
  stop_.store(true, std::memory_order_relaxed);
  state_.fetch_add(kOneSection, std::memory_order_release);
  state_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerTeam::RunErased(SectionFn fn, void* context) {
  if (threads_.empty()) {
    fn(context, 0);
    return;
  }
  fn_ = fn;
  context_ = context;
  state_.fetch_add(kOneSection | kOpenBit, std::memory_order_release);
  state_.notify_all();
  fn(context, 0);
  uint32_t state = state_.fetch_and(~kOpenBit, std::memory_order_acq_rel) & ~kOpenBit;
  while ((state & kInsideMask) != 0) state = AwaitChange(state_, state);
}

void WorkerTeam::WorkerLoop(int worker) {
  uint32_t joined_section = 0;
  ContentionMeter meter;
  uint32_t state = state_.load(std::memory_order_acquire);
  while (!stop_.load(std::memory_order_relaxed)) {
    if ((state & kOpenBit) == 0 || SectionOf(state) == joined_section) {
      if (!SpinForChange(state_, state)) {
        state_.wait(state, std::memory_order_acquire);
        meter.Forget();
      }
      state = state_.load(std::memory_order_acquire);
      continue;
    }
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      continue;  // somebody else joined or the caller closed: `state` is what it is now
    }
    joined_section = SectionOf(state);
    fn_(context_, worker);
    state = state_.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if ((state & (kInsideMask | kOpenBit)) == 0) state_.notify_all();
    if (meter.ShouldYield()) {
      sched_yield();
      state = state_.load(std::memory_order_acquire);
    }
  }
}

}  // namespace hearth
