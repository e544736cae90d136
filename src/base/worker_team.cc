#include "base/worker_team.h"

#include <system_error>

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

// Returns the value of `word` once it differs from `old`; spins first, then sleeps.
uint32_t AwaitChange(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int i = 0; i < kSpinRounds; ++i) {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    Pause();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

WorkerTeam::WorkerTeam(int num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument, "--threads", "number of threads", "1 to 1024",
                std::to_string(num_threads));
  }
  threads_.reserve(static_cast<size_t>(num_threads) - 1);
  try {
    for (int worker = 1; worker < num_threads; ++worker) {
      threads_.emplace_back([this, worker] { WorkerLoop(worker); });
    }
  } catch (const std::system_error& error) {
    const size_t started = threads_.size() + 1;
    Stop();
    throw Error(ErrorCode::kIo, "--threads",
                "the system started only " + std::to_string(started) + " of " +
                    std::to_string(num_threads) + " threads: " + error.what());
  }
}

WorkerTeam::~WorkerTeam() { Stop(); }

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
  uint32_t state = state_.load(std::memory_order_acquire);
  while (!stop_.load(std::memory_order_relaxed)) {
    if ((state & kOpenBit) == 0 || SectionOf(state) == joined_section) {
      state = AwaitChange(state_, state);
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
  }
}

}  // namespace hearth
