#include "planner/doctor/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "planner/doctor/hardware_age.h"
#include "planner/doctor/test_hardware.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

TEST(HardwareTest, HashTellsMachinesApart) {
  const HardwareProfile sample = testing::SampleHardware();
  const std::string hash = sample.MachineHash();
  EXPECT_EQ(hash.size(), 16u);
  HardwareProfile other = sample;
  other.cpu_model += "!";
  EXPECT_NE(other.MachineHash(), hash);
  other = sample;
  other.isa = "mmx";
  EXPECT_NE(other.MachineHash(), hash);
  other = sample;
  other.cpus += 1;
  EXPECT_NE(other.MachineHash(), hash);
  other = sample;
  other.memory_bytes += uint64_t{2} << 30;
  EXPECT_NE(other.MachineHash(), hash);
}

TEST(HardwareTest, HashIsTheSameOnADifferentDay) {
  HardwareProfile profile = testing::SampleHardware();
  profile.memory_bytes = (uint64_t{24} << 30) - 100'000'000;
  const std::string hash = profile.MachineHash();
  profile.memory_bytes += 1'000'000;
  profile.available_memory_bytes = 1;
  profile.load_average = 7;
  profile.measured_at_s += 1000;
  profile.mlock_limit_bytes.reset();
  profile.cores.clear();
  EXPECT_EQ(profile.MachineHash(), hash);
}

TEST(HardwareTest, TheNearestNumberOfThreadsAnswers) {
  HardwareProfile profile = testing::SampleHardware();
  EXPECT_EQ(profile.ForThreads(1).threads, 1);
  EXPECT_EQ(profile.ForThreads(2).threads, 2);
  EXPECT_EQ(profile.ForThreads(100).threads, 2);
  EXPECT_EQ(profile.ForThreads(0).threads, 1);
  profile.threads.clear();
  EXPECT_THROW(profile.ForThreads(1), Error);
}

TEST(HardwareTest, ProcessorsOfUnequalSpeedAddUp) {
  HardwareProfile profile = testing::SampleHardware();  // 1 has a quarter of 0's speed
  EXPECT_EQ(profile.CoreShare(0), 1);
  EXPECT_EQ(profile.CoreShare(1), 0.25);
  EXPECT_EQ(profile.CoreShare(7), 1) << "not measured";
  EXPECT_EQ(profile.FastestCores(std::vector<int>{0, 1}, 1), std::vector<int>{0});
  EXPECT_EQ(profile.FastestCores(std::vector<int>{1, 5, 9}, 2), (std::vector<int>{5, 9}));
  EXPECT_EQ(profile.FastestCores(std::vector<int>{1}, 4), std::vector<int>{1});
  EXPECT_EQ(profile.FloatMacsPerSecond(std::vector<int>{0, 1}), 6.5e10);
  EXPECT_EQ(profile.FloatMacsPerSecond(std::vector<int>{1}), 1.5e10);
  const ThreadSpeed& one = profile.ForThreads(1);
  EXPECT_EQ(profile.ForCores(std::vector<int>{0}).dot_bytes_per_s.median,
            one.dot_bytes_per_s.median);
  const ThreadSpeed little = profile.ForCores(std::vector<int>{1});
  EXPECT_EQ(little.dot_bytes_per_s.median, one.dot_bytes_per_s.median / 4);
  EXPECT_EQ(little.prompt_macs_per_s.median, one.prompt_macs_per_s.median / 4);
  EXPECT_EQ(little.read_bytes_per_s.median, one.read_bytes_per_s.median);
  EXPECT_EQ(profile.ForCores(std::vector<int>{0, 1}).matrix_bytes_per_s.median,
            profile.ForThreads(2).matrix_bytes_per_s.median);
  // Two big ones would do more than the two that were measured, but no more than memory delivers.
  const ThreadSpeed big = profile.ForCores(std::vector<int>{0, 7});
  EXPECT_EQ(big.matrix_bytes_per_s.median, profile.ForThreads(2).read_bytes_per_s.median);
  EXPECT_EQ(big.prompt_macs_per_s.median, 1.6 * profile.ForThreads(2).prompt_macs_per_s.median);
}

TEST(HardwareTest, MeasuredReadsAreWhatWasMeasured) {
  const HardwareProfile profile = testing::SampleHardware();
  EXPECT_NEAR(profile.IoBytesPerSecond(4096, 32), 3.2e6, 1);
  EXPECT_NEAR(profile.IoBytesPerSecond(4096, 1), 1e5, 1e-3);
  EXPECT_NEAR(profile.IoBytesPerSecond(1 << 20, 32), 3.2e6 * 256, 1);
  EXPECT_NEAR(profile.IoCpuSecondsPerRead(65536, 1), 3e-6, 1e-12);
}

TEST(HardwareTest, BetweenDepthsRatesLieOnAStraightLineInLogarithms) {
  const HardwareProfile profile = testing::SampleHardware();
  // 32 reads at once are 32 times as fast as one: so every depth is as many times as fast.
  EXPECT_NEAR(profile.IoBytesPerSecond(4096, 5), 5e5, 1);
  EXPECT_NEAR(profile.IoBytesPerSecond(4096, 31), 3.1e6, 10);
  EXPECT_NEAR(profile.IoBytesPerSecond(4096, 4000), 3.2e6, 1);
}

TEST(HardwareTest, TimesOfReadsAreThoseOfTheNearestDepthInItsLogarithm) {
  const HardwareProfile profile = testing::SampleHardware();
  EXPECT_EQ(profile.IoBatchSeconds(4096, 5), profile.IoBatchSeconds(4096, 1));
  EXPECT_EQ(profile.IoBatchSeconds(4096, 6), profile.IoBatchSeconds(4096, 32));
}

TEST(HardwareTest, BetweenSizesLiesAStraightLineInLogarithms) {
  HardwareProfile profile = testing::SampleHardware();
  // Every read takes as long as any other: twice the size is twice the speed.
  EXPECT_NEAR(profile.IoBytesPerSecond(8192, 1), 2e5, 1e-3);
  EXPECT_NEAR(profile.IoBytesPerSecond(300000, 1), 1e5 * 300000 / 4096, 1e-3);
  profile.storage.reads = {
      {1024, 1, 0, -1, testing::SpreadAround(1e6), testing::SpreadAround(1e-6)},
      {4096, 1, 0, -1, testing::SpreadAround(4e6), testing::SpreadAround(4e-6)}};
  EXPECT_NEAR(profile.IoCpuSecondsPerRead(2048, 1), 2e-6, 1e-12);
}

TEST(HardwareTest, OutsideTheMeasuredSizesReadsCostWhatTheNearestCosts) {
  const HardwareProfile profile = testing::SampleHardware();
  EXPECT_NEAR(profile.IoBytesPerSecond(512, 1), 1e5 / 8, 1e-3);
  EXPECT_NEAR(profile.IoCpuSecondsPerRead(1, 1), 3e-6, 1e-12);
  EXPECT_NEAR(profile.IoBytesPerSecond(8 << 20, 32), 3.2e6 * 256, 1);
  EXPECT_NEAR(profile.IoCpuSecondsPerRead(4 << 20, 32), 12e-6, 1e-12);
}

TEST(HardwareTest, BatchesAndRangesAreAsMeasured) {
  HardwareProfile profile = testing::SampleHardware();
  EXPECT_NEAR(profile.IoBatchSeconds(4096, 32), 32 * 4096 / 3.2e6, 1e-9);
  EXPECT_NEAR(profile.IoBatchSeconds(4096, 1), 4096 / 1e5, 1e-9);
  // Of the sample only reads of 4 KiB in 128 MiB are measured, at 4e6 bytes/s; of the whole file at
  // 3.2e6, and 1.2 times that at the most.
  EXPECT_EQ(profile.IoRangeGain(4096, 100 << 20), 1);
  for (IoSpeed& read : profile.storage.reads) {
    if (read.range_bytes != 0) read.bytes_per_s.min = 3.9e6;
  }
  EXPECT_NEAR(profile.IoRangeGain(4096, 100 << 20), 1.25, 1e-9);
  EXPECT_NEAR(profile.IoRangeGain(4096, 0), 1.25, 1e-9);
  EXPECT_EQ(profile.IoRangeGain(4096, uint64_t{1} << 40), 1);
}

TEST(HardwareTest, StorageKeepsAShareBesideThreadsThatTakeMemoryIn) {
  HardwareProfile profile = testing::SampleHardware();
  const double alone = profile.IoBytesPerSecond(kBusyBlockBytes, kBusyQueueDepth);
  EXPECT_NEAR(profile.BusyIoShare(1), 2e8 / alone, 1e-9);
  EXPECT_NEAR(profile.BusyIoShare(2), 1e8 / alone, 1e-9);
  profile.threads[0].busy_io_bytes_per_s.median = 2 * alone;
  EXPECT_EQ(profile.BusyIoShare(1), 1);
}

TEST(HardwareTest, FewerThreadsLeaveStorageMoreOnlyWhereTheRoundsTell) {
  HardwareProfile profile = testing::SampleHardware();
  for (IoSpeed& read : profile.storage.reads) read.bytes_per_s.median *= 4;
  const double alone = profile.IoBytesPerSecond(kBusyBlockBytes, kBusyQueueDepth);
  Spread& beside_two = profile.threads[1].busy_io_bytes_per_s;
  beside_two.max = profile.threads[0].busy_io_bytes_per_s.min;
  EXPECT_NEAR(profile.BusyIoShare(1), 1e8 / alone, 1e-9);
  EXPECT_NEAR(profile.BusyIoShare(2), 1e8 / alone, 1e-9);
  beside_two.max *= 0.99;
  EXPECT_NEAR(profile.BusyIoShare(1), 2e8 / alone, 1e-9);
  // Beside more threads it is faster: that is no reason to doubt what one leaves.
  beside_two = testing::SpreadAround(3e8);
  EXPECT_NEAR(profile.BusyIoShare(1), 2e8 / alone, 1e-9);
  EXPECT_NEAR(profile.BusyIoShare(2), 3e8 / alone, 1e-9);
}

TEST(HardwareTest, SingleNeuronsKeepAnotherShareBesideThem) {
  HardwareProfile profile = testing::SampleHardware();
  const double alone = profile.IoBytesPerSecond(kBusyNeuronBytes, kBusyNeuronDepth);
  EXPECT_NEAR(profile.BusyNeuronShare(1), 1e6 / alone, 1e-9);
  EXPECT_NEAR(profile.BusyNeuronShare(2), 5e5 / alone, 1e-9);
  profile.threads[0].busy_neuron_bytes_per_s.median = 2 * alone;
  EXPECT_EQ(profile.BusyNeuronShare(1), 1);
}

TEST(HardwareTest, OnlyThisMachinesProfileIsTaken) {
  HardwareProfile profile = testing::SampleHardware();
  EXPECT_NO_THROW(CheckIsThisMachine(profile, "hw.json"));
  profile.cpu_model = "MOS 6502";
  try {
    CheckIsThisMachine(profile, "hw.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("hw.json: was measured on another machine"));
    EXPECT_THAT(error.what(), HasSubstr("MOS 6502"));
  }
}

TEST(HardwareTest, StaleProfilesAreWarnedOf) {
  HardwareProfile profile = testing::SampleHardware();
  profile.storage.directory = "/";
  const int64_t now = profile.measured_at_s + 24 * 3600;
  const auto only = [&](int64_t now_s, const std::string& model) -> std::string {
    const std::vector<std::string> reasons = StaleReasons(profile, model, now_s);
    return reasons.size() == 1 ? reasons.front() : std::to_string(reasons.size());
  };
  EXPECT_EQ(only(now, "/"), "0");
  EXPECT_EQ(only(profile.measured_at_s - 60, "/"), "0");  // clocks are set
  EXPECT_THAT(only(profile.measured_at_s + 45 * 24 * 3600, "/"), HasSubstr("45 days ago"));
  EXPECT_THAT(only(now - 30 * 24 * 3600, "/"), HasSubstr("future"));
  EXPECT_THAT(only(now, "/proc/version"), HasSubstr("another disk than /proc/version"));
  EXPECT_EQ(only(now, "/not/there"), "0");
  profile.system = "Linux 2.2.0";
  EXPECT_THAT(only(now, "/"), HasSubstr("under Linux 2.2.0"));
}

TEST(HardwareMachineTest, AcceleratorsAreNamed) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / ("devices" + std::to_string(getpid()));
  EXPECT_TRUE(ListAccelerators(root).empty());
  fs::create_directories(root / "dev/dri");
  for (const char* name :
       {"nvidia0", "nvidiactl", "dri/renderD128", "dri/renderD129", "dri/card0"}) {
    std::ofstream(root / "dev" / name) << "";
  }
  fs::create_directories(root / "sys/class/drm/renderD129/device");
  std::ofstream(root / "sys/class/drm/renderD129/device/uevent") << "DRIVER=amdgpu\nX=1\n";
  EXPECT_EQ(ListAccelerators(root),
            (std::vector<std::string>{"nvidia0", "renderD128", "renderD129 (amdgpu)"}));
  fs::create_directories(root / "proc/driver/nvidia/gpus/0000:01:00.0");
  std::ofstream(root / "proc/driver/nvidia/gpus/0000:01:00.0/information")
      << "Model: \t\t NVIDIA H100\nIRQ: 1\n";
  EXPECT_EQ(ListAccelerators(root),
            (std::vector<std::string>{"NVIDIA H100", "renderD128", "renderD129 (amdgpu)"}));
  fs::remove_all(root);
}

}  // namespace
}  // namespace hearth
