#include "plan/stream_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace hearth {
namespace {

constexpr StreamShape kBamboo = {
    .num_ffns = 32, .neurons = 14336, .bundle_bytes = 7168, .gate_bytes = 2308, .half_bytes = 4608};

uint64_t BytesOf(const StreamShape& shape, const StreamPlan& plan) {
  return plan.arena_bytes(shape) + plan.gates_bytes(shape);
}

TEST(StreamPlanTest, NeverTakesMoreThanItIsGiven) {
  for (const StreamShape& shape :
       {kBamboo, StreamShape{5, 100, 1024, 260, 512}, StreamShape{256, 14336, 7168, 2308, 4608}}) {
    const uint64_t all = static_cast<uint64_t>(shape.all_neurons()) * shape.bundle_bytes;
    for (const GatePlace gates : {GatePlace::kInSlots, GatePlace::kInMemory}) {
      for (const double share : {0.0, 0.3, 0.5, 1.0}) {
        for (uint64_t bytes = SmallestStreamBytes(shape); bytes < all; bytes += all / 37 + 1) {
          const StreamPlan plan = PlanStream(shape, bytes, share, gates);
          EXPECT_LE(BytesOf(shape, plan), bytes);
          EXPECT_LE(plan.pinned_neurons, shape.neurons);
          EXPECT_LE(plan.pinned_slots(shape) + plan.cache_slots,
                    std::max<int64_t>(shape.all_neurons(), plan.pinned_slots(shape) + 1));
          EXPECT_EQ(plan.range_neurons % StreamPlan::kRangeGrain, 0);
          EXPECT_TRUE(plan.pinned_neurons % StreamPlan::kRangeGrain == 0 ||
                      plan.pinned_neurons == shape.neurons);
          EXPECT_GE(plan.range_buffers, 2);
          EXPECT_GE(plan.cache_slots, 1);
          EXPECT_EQ(plan.spare_bytes(shape) + plan.first_spare_slot(shape) * plan.slot_bytes(shape),
                    plan.arena_bytes(shape));
        }
      }
    }
  }
}

// Whatever somebody's own plan has before them.
TEST(StreamPlanTest, SpareSlotsBeginWithAPage) {
  constexpr uint64_t kPage = StreamPlan::kPageBytes;
  for (const bool holds_gates : {false, true}) {
    for (int64_t slots = 1; slots < 20; ++slots) {
      for (const LentPages& lent : {LentPages{}, LentPages{.count = 3, .page_bytes = 5120}}) {
        const StreamPlan plan = {.holds_gates = holds_gates,
                                 .cache_slots = slots,
                                 .lent = lent,
                                 .range_neurons = 64,
                                 .range_buffers = 2};
        const int64_t first = plan.first_spare_slot(kBamboo);
        const int64_t before = plan.cache_slots + plan.lent_slots(kBamboo);
        EXPECT_EQ(static_cast<uint64_t>(first) * plan.slot_bytes(kBamboo) % kPage, 0) << slots;
        EXPECT_GE(first, before);
        EXPECT_LT(first, before + StreamPlan::PiecesOfPages(plan.slot_bytes(kBamboo)));
      }
    }
  }
  EXPECT_EQ(StreamPlan::PiecesOfPages(512), 8);
  EXPECT_EQ(StreamPlan::PiecesOfPages(7168), 4);
  EXPECT_EQ(StreamPlan::PiecesOfPages(8192), 1);
  EXPECT_EQ(StreamPlan::MostReadBytes(7168) % kPage, 0);
  EXPECT_EQ(StreamPlan::MostReadBytes(7168) % 7168, 0);
}

TEST(StreamPlanTest, ClustersHaveBounds) {
  StreamPlan plan = PlanStream(kBamboo, uint64_t{1} << 30, 0);
  CheckStreamPlan(kBamboo, plan);
  for (const ClusterSizes& wrong :
       {ClusterSizes{0, 16}, ClusterSizes{17, 16}, ClusterSizes{16, ClusterSizes::kLimit + 1}}) {
    plan.clusters = wrong;
    EXPECT_THROW(CheckStreamPlan(kBamboo, plan), Error);
  }
}

TEST(StreamPlanTest, UsesNearlyAllOfIt) {
  const uint64_t half = static_cast<uint64_t>(kBamboo.all_neurons()) * kBamboo.bundle_bytes / 2;
  const StreamPlan plan = PlanStream(kBamboo, half, 0.5);
  EXPECT_GT(BytesOf(kBamboo, plan), half - 7168);
  EXPECT_GT(plan.pinned_neurons, 14336 / 4 - 256);
  EXPECT_EQ(plan.range_neurons, 2048);
}

TEST(StreamPlanTest, GatesStayWhereTheyAndTheLeastSlotsFit) {
  const uint64_t gates = static_cast<uint64_t>(kBamboo.all_neurons()) * kBamboo.gate_bytes;
  const uint64_t enough = gates + SmallestStreamBytes(kBamboo);
  EXPECT_FALSE(PlanStream(kBamboo, enough - 1, 0.5, GatePlace::kInMemory).holds_gates);
  EXPECT_FALSE(PlanStream(kBamboo, enough, 0.5, GatePlace::kInSlots).holds_gates);
  const StreamPlan least = PlanStream(kBamboo, enough, 0.5, GatePlace::kInMemory);
  EXPECT_TRUE(least.holds_gates);
  EXPECT_EQ(least.gates_bytes(kBamboo), gates);
  EXPECT_EQ(least.slot_bytes(kBamboo), kBamboo.half_bytes);
  // Halves are smaller: more of them fit into the same memory.
  const uint64_t slots = uint64_t{1} << 30;
  const StreamPlan halves = PlanStream(kBamboo, gates + slots, 0.5, GatePlace::kInMemory);
  const StreamPlan bundles = PlanStream(kBamboo, slots, 0.5);
  EXPECT_GT(BytesOf(kBamboo, halves),
            gates + slots - 8 * kBamboo.half_bytes);  // which fill whole pages
  EXPECT_EQ(halves.spare_bytes(kBamboo), bundles.spare_bytes(kBamboo));
  EXPECT_GT(halves.cache_slots, bundles.cache_slots * 3 / 2);
}

TEST(StreamPlanTest, RefusesTooLittle) {
  EXPECT_THROW(PlanStream(kBamboo, SmallestStreamBytes(kBamboo) - 1, 0.5), Error);
  EXPECT_THROW(PlanStream(kBamboo, uint64_t{1} << 30, 1.5), Error);
}

}  // namespace
}  // namespace hearth
