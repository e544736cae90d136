#include "planner/cost/kv_spill.h"

#include <gtest/gtest.h>

#include <array>

#include "planner/cost/test_planned_model.h"

namespace hearth {
namespace {

class KvSpillTest : public PlannedModelTest {
 protected:
  KvSpillTest() : plan_(PlanEngine(GgufFile::Open(Model()), Options(FfnMode::kDense))) {
    DescribeWeights(plan_.load);
  }
  CostInputs Inputs(const HardwareProfile& hardware) const {
    return {
        .plan = plan_, .hardware = hardware, .cores = kCores, .activity = AllNeurons(plan_.load)};
  }

  static constexpr std::array<int, 2> kCores = {0, 1};
  EnginePlan plan_;
};

TEST_F(KvSpillTest, ATokenTakesTheLongerOfComputingAndReading) {
  const HardwareProfile hardware = WithFlash(1);
  const CostInputs in = Inputs(hardware);
  const int64_t hidden = HiddenKvTokens(in, 64);
  ASSERT_GT(hidden, 0);
  ASSERT_LT(hidden, kMostHiddenTokens);
  // Up to there it takes what it takes from memory.
  for (const int64_t spilled : {int64_t{0}, hidden / 2, hidden}) {
    EXPECT_DOUBLE_EQ(SpilledTokenMs(in, 64 + spilled, spilled),
                     SpilledTokenMs(in, 64 + spilled, 0));
  }
  // Beyond that, what reading takes: as much more for each page.
  const auto more = [&](int64_t pages) {
    const int64_t spilled = hidden + pages * 64;
    return SpilledTokenMs(in, 64 + spilled, spilled);
  };
  EXPECT_GT(more(1), SpilledTokenMs(in, 64 + hidden + 64, 0));
  const double page = static_cast<double>(64 * plan_.kv_layout().token_bytes());
  const double rate = hardware.IoBytesPerSecond(uint64_t{1} << 20, 32);
  EXPECT_NEAR(more(1000) - more(500), 1000 * 500 * page / rate, 0.05 * (more(1000) - more(500)));
}

TEST_F(KvSpillTest, FasterFlashHidesMore) {
  int64_t before = 0;
  for (const double factor : {1.0, 8.0}) {
    HardwareProfile hardware = WithFlash(factor);
    for (ThreadSpeed& speed : hardware.threads) speed.busy_io_bytes_per_s.median *= factor;
    const int64_t hidden = HiddenKvTokens(Inputs(hardware), 64);
    EXPECT_GT(hidden, before);
    before = hidden;
  }
}

}  // namespace
}  // namespace hearth
