#include "prepare/pack/ordered_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace hearth {
namespace {

TEST(OrderedWorkTest, EveryPieceOnceAndTakenInOrder) {
  for (const int threads : {1, 2, 5}) {
    WorkerTeam team(threads);
    for (const size_t pieces : {size_t{0}, size_t{1}, size_t{3}, size_t{200}}) {
      std::vector<std::atomic<int>> made(pieces);
      std::vector<size_t> taken;
      RunPiecesInOrder(
          team, pieces,
          [&](int worker, size_t piece) {
            EXPECT_LT(worker, threads);
            ++made[piece];
          },
          [&](int, size_t piece) { taken.push_back(piece); });
      ASSERT_EQ(taken.size(), pieces);
      for (size_t i = 0; i < pieces; ++i) {
        EXPECT_EQ(taken[i], i);
        EXPECT_EQ(made[i], 1);
      }
      std::vector<std::atomic<int>> worked(pieces);
      RunPieces(team, pieces, [&](int, size_t piece) { ++worked[piece]; });
      for (const auto& count : worked) EXPECT_EQ(count, 1);
    }
  }
}

TEST(OrderedWorkTest, TheThreadThatMadeAPieceGivesIt) {
  WorkerTeam team(3);
  std::vector<int> made_by(100, -1);
  RunPiecesInOrder(
      team, made_by.size(), [&](int worker, size_t piece) { made_by[piece] = worker; },
      [&](int worker, size_t piece) { EXPECT_EQ(made_by[piece], worker); });
}

TEST(OrderedWorkTest, AnErrorAnywhereStopsAllAndReachesTheCaller) {
  for (const int threads : {1, 4}) {
    WorkerTeam team(threads);
    std::atomic<int> calls{0};
    const auto fail_at = [&](size_t bad) {
      return [&calls, bad](int, size_t piece) {
        ++calls;
        if (piece == bad) throw std::runtime_error("bad");
        // So that they are not done while the thread with the bad one waits for a processor.
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      };
    };
    const auto count = [](int, size_t) {};
    EXPECT_THROW(RunPieces(team, 100000, fail_at(5)), std::runtime_error);
    EXPECT_THROW(RunPiecesInOrder(team, 100000, fail_at(5), count), std::runtime_error);
    EXPECT_THROW(RunPiecesInOrder(team, 100000, count, fail_at(5)), std::runtime_error);
    EXPECT_LT(calls, 100000);
    // The team still works.
    std::atomic<int> done{0};
    RunPieces(team, 10, [&](int, size_t) { ++done; });
    EXPECT_EQ(done, 10);
  }
}

}  // namespace
}  // namespace hearth
