#include "plan/extent_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace hearth {
namespace {

TEST(ExtentPlanTest, StaysWithinItsMemoryAndUsesIt) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    ExtentShape shape;
    shape.num_extents = 1 + static_cast<int64_t>(random() % 5000);
    shape.slot_bytes = 64 * (1 + random() % 70000);
    shape.read_bytes = 4096 * (1 + random() % 1200);
    const uint64_t bytes = SmallestExtentBytes(shape) + random() % (uint64_t{8} << 30);
    const ExtentPlan plan = PlanExtents(shape, bytes);
    EXPECT_GE(plan.cache_slots, 1);
    EXPECT_GE(plan.read_buffers, 2);
    EXPECT_LE(plan.cache_slots, shape.num_extents);
    EXPECT_LE(plan.ChargedBytes(shape), bytes);
    if (plan.cache_slots < shape.num_extents) {
      EXPECT_GT(plan.ChargedBytes(shape) + shape.slot_bytes, bytes) << "another slot would fit";
    }
  }
}

TEST(ExtentPlanTest, TheSmallestIsTheSmallest) {
  const ExtentShape shape = {.num_extents = 100, .slot_bytes = 1000, .read_bytes = 8192};
  const uint64_t smallest = SmallestExtentBytes(shape);
  EXPECT_EQ(PlanExtents(shape, smallest).ChargedBytes(shape), smallest);
  EXPECT_THROW(PlanExtents(shape, smallest - 1), Error);
}

}  // namespace
}  // namespace hearth
