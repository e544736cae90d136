#include "cli/screen/interrupts.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace hearth::cli {
namespace {

// The mutable globals of the program: a signal handler can reach nothing else.
std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);
// Readable after a Ctrl-C. Any thread may receive the signal, so that an interrupted system call
// alone would not reliably wake the one that waits for input.
int g_wake_fd = -1;

void OnInterrupt(int) {
  const int saved_errno = errno;
  g_interrupted.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  // Fails only where the counter is at its limit, and then it is readable anyway.
  [[maybe_unused]] const ssize_t written = write(g_wake_fd, &one, sizeof(one));
  errno = saved_errno;
}

}  // namespace

void CatchInterrupts(bool also_terminate) {
  if (g_wake_fd >= 0) return;
  g_wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (g_wake_fd < 0) throw Error(ErrorCode::kIo, "Ctrl-C", std::strerror(errno));
  struct sigaction act = {};
  act.sa_handler = OnInterrupt;
  act.sa_flags = SA_RESTART;
  sigemptyset(&act.sa_mask);
  sigaction(SIGINT, &act, nullptr);
  if (!also_terminate) return;
  sigaction(SIGTERM, &act, nullptr);
  // A terminal that went away; nohup has it ignored, and that is to stay so.
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &act, nullptr);
}

const std::atomic<bool>& InterruptFlag() { return g_interrupted; }

int InterruptDescriptor() { return g_wake_fd; }

void StopWhereInterrupted(const std::string& where) {
  if (g_interrupted) throw Error(ErrorCode::kCancelled, where, "interrupted, nothing was written");
}

void ClearInterrupt() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = read(g_wake_fd, &count, sizeof(count));
  g_interrupted.store(false, std::memory_order_relaxed);
}

}  // namespace hearth::cli
