// When a plan has a processor that only reads, and which one.
#include <gtest/gtest.h>

#include <vector>

#include "engine/load/obey_plan.h"
#include "planner/cost/test_planned_model.h"

namespace hearth {
namespace {

using IoCoreTest = PlannedModelTest;

// Where threads wait for memory, one of them may as well do all reading, so that the others lose no
// time to it (P2 §5.1, c_io). The plan takes the fastest reader, and an engine obeys.
TEST_F(IoCoreTest, AProcessorReadsAloneWhereComputingDoesNotMissIt) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  const PlanRequest request = Request(mode, Memory(mode, 45));
  EXPECT_FALSE(Plan(mode, Memory(mode, 45)).plan.io_core) << "two threads are twice as fast";
  HardwareProfile hardware = WithFlash(1e4);
  for (ThreadSpeed& speed : hardware.threads) {
    speed.dot_bytes_per_s.median = speed.add_bytes_per_s.median = 1e8;
  }
  for (const int reader : {0, 1}) {
    hardware.cores[1].is_big = true;
    for (const int cpu : {0, 1}) {
      hardware.storage.reads.push_back({2048, 32, 0, cpu,
                                        testing::SpreadAround(cpu == reader ? 4e8 : 2e8),
                                        testing::SpreadAround(3e-6), testing::SpreadAround(1e-4)});
    }
    const ExecutionPlan plan = MakePlan(request, hardware, &*accesses).plan;
    ASSERT_TRUE(plan.io_core);
    EXPECT_EQ(*plan.io_core, reader);
    EXPECT_EQ(plan.compute_cores, std::vector<int>(1, 1 - reader));
    EXPECT_EQ(plan.threads(), 2);
    const EngineOptions options = OptionsOfPlan(plan, Hash(), hardware.MachineHash());
    EXPECT_EQ(options.threads, 2);
    EXPECT_EQ(options.caller_processor, reader);
    EXPECT_EQ(options.streaming.pipeline.io_thread, IoThread::kOwn);
    std::erase_if(hardware.storage.reads, [](const IoSpeed& read) { return read.cpu >= 0; });
  }
}

}  // namespace
}  // namespace hearth
