#include "plan/stream_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace hearth {
namespace {

constexpr StreamShape kBamboo = {.num_ffns = 32, .neurons = 14336, .slot_bytes = 7168};

TEST(StreamPlanTest, NeverTakesMoreThanItIsGiven) {
  for (const StreamShape& shape :
       {kBamboo, StreamShape{.num_ffns = 5, .neurons = 100, .slot_bytes = 512},
        StreamShape{.num_ffns = 256, .neurons = 14336, .slot_bytes = 7168}}) {
    const uint64_t all = static_cast<uint64_t>(shape.all_neurons()) * shape.slot_bytes;
    for (const double share : {0.0, 0.3, 0.5, 1.0}) {
      for (uint64_t bytes = SmallestStreamBytes(shape); bytes < all; bytes += all / 37 + 1) {
        const StreamPlan plan = PlanStream(shape, bytes, share);
        EXPECT_LE(static_cast<uint64_t>(plan.all_slots(shape)) * shape.slot_bytes, bytes);
        EXPECT_EQ(plan.range_neurons % StreamPlan::kRangeGrain, 0);
        EXPECT_EQ(plan.pinned_neurons % StreamPlan::kRangeGrain, 0);
        EXPECT_GE(plan.range_buffers, 2);
        EXPECT_GE(plan.cache_slots, 1);
      }
    }
  }
}

TEST(StreamPlanTest, UsesNearlyAllOfIt) {
  const uint64_t half = static_cast<uint64_t>(kBamboo.all_neurons()) * kBamboo.slot_bytes / 2;
  const StreamPlan plan = PlanStream(kBamboo, half, 0.5);
  EXPECT_GT(static_cast<uint64_t>(plan.all_slots(kBamboo)) * kBamboo.slot_bytes, half - 7168);
  EXPECT_GT(plan.pinned_neurons, 14336 / 4 - 256);
  EXPECT_EQ(plan.range_neurons, 2048);
}

TEST(StreamPlanTest, RefusesTooLittle) {
  EXPECT_THROW(PlanStream(kBamboo, SmallestStreamBytes(kBamboo) - 1, 0.5), Error);
  EXPECT_THROW(PlanStream(kBamboo, uint64_t{1} << 30, 1.5), Error);
}

}  // namespace
}  // namespace hearth
