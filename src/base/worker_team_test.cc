#include "base/worker_team.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"

namespace hearth {
namespace {

TEST(WorkerTeamTest, RunCallsEachWorkerAtMostOnceAndTheCallerAlways) {
  for (const int threads : {1, 2, 5}) {
    WorkerTeam team(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(threads));
      team.Run([&](int worker) { ++calls[static_cast<size_t>(worker)]; });
      EXPECT_EQ(calls[0].load(), 1);
      for (const auto& count : calls) EXPECT_LE(count.load(), 1);
    }
  }
}

TEST(WorkerTeamTest, OthersJoinWhileASectionIsOpen) {
  WorkerTeam team(3);
  std::atomic<int> inside{0};
  team.Run([&](int) {
    ++inside;
    while (inside.load() < 3) std::this_thread::yield();  // hangs if somebody never comes
  });
  EXPECT_EQ(inside.load(), 3);
}

TEST(WorkerTeamTest, ParallelForCoversEveryIndexOnce) {
  WorkerTeam team(3);
  for (const int64_t count : {0, 1, 7, 64, 1000}) {
    for (const int64_t grain : {1, 3, 16, 2000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      team.ParallelFor(count, grain, [&](int64_t begin, int64_t end, int) {
        EXPECT_EQ(begin % grain, 0);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& times : seen) EXPECT_EQ(times.load(), 1) << count << " by " << grain;
    }
  }
}

TEST(WorkerTeamTest, WhatWorkersWroteIsVisibleAfterwards) {
  WorkerTeam team(4);
  std::vector<int64_t> values(10000, 0);
  for (int64_t round = 1; round <= 50; ++round) {
    team.ParallelFor(10000, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++values[static_cast<size_t>(i)];
    });
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 10000 * round);
  }
}

TEST(WorkerTeamTest, WakesSleepingWorkers) {
  WorkerTeam team(2);
  std::atomic<int> calls{0};
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long past spinning
    const int before = calls.load();
    team.Run([&](int) {
      ++calls;
      while (calls.load() < before + 2) std::this_thread::yield();
    });
  }
  EXPECT_EQ(calls.load(), 6);
}

TEST(WorkerTeamTest, WorkersArePinnedWhereThereAreProcessorsForThem) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  for (const int threads : {2, CPU_COUNT(&allowed) + 1}) {
    if (threads == 2 && CPU_COUNT(&allowed) < 2) continue;
    WorkerTeam team(threads);
    std::vector<int> processors(static_cast<size_t>(threads), 0);
    std::atomic<int> inside{0};
    team.Run([&](int worker) {
      cpu_set_t own;
      sched_getaffinity(0, sizeof(own), &own);
      processors[static_cast<size_t>(worker)] = CPU_COUNT(&own);
      ++inside;
      while (inside.load() < threads) std::this_thread::yield();
    });
    EXPECT_EQ(processors[0], CPU_COUNT(&allowed)) << "the caller keeps its freedom";
    for (int worker = 1; worker < threads; ++worker) {
      EXPECT_EQ(processors[static_cast<size_t>(worker)], threads == 2 ? 1 : CPU_COUNT(&allowed));
    }
  }
}

TEST(WorkerTeamTest, ThePinnedCallerHasAProcessorOfItsOwnUntilThePinGoes) {
  const std::vector<int> before = AllowedCpus();
  WorkerTeam team(2);
  {
    const WorkerTeam::CallerPin pin(team);
    const std::vector<int> pinned = AllowedCpus();
    if (before.size() < 2) {
      EXPECT_EQ(pinned, before);
    } else {
      EXPECT_EQ(pinned, std::vector<int>(1, before.front()));
    }
  }
  EXPECT_EQ(AllowedCpus(), before);
  WorkerTeam alone(1);
  const WorkerTeam::CallerPin pin(alone);
  EXPECT_EQ(AllowedCpus(), before) << "nobody to keep away from";
}

TEST(WorkerTeamTest, TheCallerHasTheProcessorThatWasChosen) {
  const std::vector<int> before = AllowedCpus();
  if (before.size() < 2) GTEST_SKIP() << "one processor";
  for (const int chosen : {before.back(), before.front()}) {
    WorkerTeam team(2, chosen);
    const WorkerTeam::CallerPin pin(team);
    EXPECT_EQ(AllowedCpus(), std::vector<int>(1, chosen));
    std::atomic<int> inside{0};
    team.Run([&](int worker) {
      EXPECT_EQ(AllowedCpus() == std::vector<int>(1, chosen), worker == 0);
      ++inside;
      while (inside.load() < 2) std::this_thread::yield();
    });
  }
  WorkerTeam team(2, 4000);
  const WorkerTeam::CallerPin pin(team);
  EXPECT_EQ(AllowedCpus(), std::vector<int>(1, before.front())) << "one that is not there";
}

TEST(WorkerTeamTest, RefusesImpossibleSizes) {
  EXPECT_THROW(WorkerTeam(0), Error);
  EXPECT_THROW(WorkerTeam(-3), Error);
  EXPECT_THROW(WorkerTeam(100000), Error);
}

}  // namespace
}  // namespace hearth
