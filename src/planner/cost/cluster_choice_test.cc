#include "planner/cost/cluster_choice.h"

#include <gtest/gtest.h>

#include <array>

#include "planner/doctor/test_hardware.h"

namespace hearth {
namespace {

constexpr std::array kBothCores = {0, 1};
constexpr uint64_t kBundleOf4096 = 7168;

HardwareProfile Machine(double dot_bytes_per_s, double section_seconds, double read_bytes_per_s) {
  HardwareProfile hardware = testing::SampleHardware();
  for (ThreadSpeed& speed : hardware.threads) {
    speed.dot_bytes_per_s.median = dot_bytes_per_s;
    speed.section_seconds.median = section_seconds;
  }
  for (IoSpeed& read : hardware.storage.reads) read.bytes_per_s.median = read_bytes_per_s;
  return hardware;
}

// 7 KiB at 10 GB/s a thread are 0.7 us.
TEST(ClusterChoiceTest, TakingCostsLittleBesideComputing) {
  const auto fewest = [](double section_seconds, uint64_t bytes) {
    return ChooseClusters(Machine(2e10, section_seconds, 1e9), kBothCores, bytes, 128).fewest;
  };
  EXPECT_EQ(fewest(0.45e-6, kBundleOf4096), 16);
  EXPECT_EQ(fewest(0.9e-6, kBundleOf4096), 32);
  EXPECT_EQ(fewest(0.45e-6, kBundleOf4096 / 2), 32);  // smaller neurons, more of them
  EXPECT_EQ(fewest(0, kBundleOf4096), 8);
  EXPECT_EQ(fewest(1, kBundleOf4096), 64);
}

TEST(ClusterChoiceTest, NobodyComputesForLongerThanTheQueueLasts) {
  const auto most = [](double read_bytes_per_s, int depth) {
    return ChooseClusters(Machine(2e10, 0.45e-6, read_bytes_per_s), kBothCores, kBundleOf4096,
                          depth)
        .most;
  };
  EXPECT_EQ(most(1e9, 128), ClusterSizes::kLimit);
  EXPECT_EQ(most(2e10, 128), 64);  // storage twice as fast as a thread: half of the queue
  EXPECT_EQ(most(2e10, 64), 32);
  EXPECT_EQ(most(1e12, 128), 16);  // and no fewer than the fewest
}

TEST(ClusterChoiceTest, WhatWasNotMeasuredChangesNothing) {
  EXPECT_EQ(ChooseClusters(Machine(0, 0, 1e9), kBothCores, kBundleOf4096, 128), ClusterSizes());
}

}  // namespace
}  // namespace hearth
