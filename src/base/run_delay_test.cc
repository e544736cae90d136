#include "base/run_delay.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/stopwatch.h"

namespace hearth {
namespace {

// Two threads that may only use one processor wait for it in turn.
TEST(RunDelayTest, GrowsWhileAnotherThreadHasTheProcessor) {
  if (!ThreadRunDelaySeconds()) GTEST_SKIP() << "this system does not say";
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
  }
  std::atomic<int> seen{0};
  const auto Spin = [&] {
    sched_setaffinity(0, sizeof(one), &one);
    const double before = *ThreadRunDelaySeconds();
    bool is_seen = false;
    // Both go on until both have waited.
    for (const Stopwatch watch; seen < 2 && watch.Seconds() < 20;) {
      if (is_seen || *ThreadRunDelaySeconds() <= before) continue;
      is_seen = true;
      ++seen;
    }
  };
  std::thread first(Spin), second(Spin);
  first.join();
  second.join();
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace hearth
