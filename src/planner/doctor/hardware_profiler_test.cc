// How fast a machine is cannot be asserted: only that everything was measured, and as often as
// asked.
#include "planner/doctor/hardware_profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/cpu.h"
#include "base/error.h"
#include "planner/doctor/hardware_plot.h"
#include "planner/doctor/hardware_probe.h"
#include "planner/doctor/hardware_warnings.h"
#include "planner/doctor/scratch_file.h"
#include "planner/doctor/test_hardware.h"
#include "storage/async/async_reader.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// An empty folder of the test's own.
class HardwareProfilerTest : public ::testing::Test {
 protected:
  HardwareProfilerTest() {
    fs::create_directories(folder_);
    options_.directory = folder_.string();
  }
  ~HardwareProfilerTest() override { fs::remove_all(folder_); }

  std::string MakeFile(uint64_t bytes) {
    const std::string path = (folder_ / "model.gguf").string();
    std::ofstream(path) << std::string(bytes, 'x');
    return path;
  }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("hardware_profiler" + std::to_string(getpid()));
  ProfilerOptions options_ = {.effort = {.rounds = 2,
                                         .total_seconds = 1000,
                                         .core_seconds = 1e-4,
                                         .thread_seconds = 1e-4,
                                         .read_seconds = 1e-4,
                                         .write_seconds = 10,
                                         .memory_bytes = uint64_t{16} << 20,
                                         .file_bytes = uint64_t{16} << 20,
                                         .hidden_size = 64,
                                         .ffn_neurons = 100,
                                         .prompt_tokens = 5}};
};

void ExpectMeasured(const Spread& spread) {
  EXPECT_TRUE(std::isfinite(spread.max));
  EXPECT_GT(spread.min, 0);
  EXPECT_LE(spread.min, spread.median);
  EXPECT_LE(spread.median, spread.max);
}

void ExpectAllMeasured(const HardwareProfile& profile) {
  for (const CoreSpeed& core : profile.cores) {
    ExpectMeasured(core.int8_macs_per_s);
    ExpectMeasured(core.float_ops_per_s);
    ExpectMeasured(core.look_up_seconds);
  }
  for (const ThreadSpeed& speed : profile.threads) {
    for (const Spread& spread :
         {speed.read_bytes_per_s, speed.matrix_bytes_per_s, speed.dot_bytes_per_s,
          speed.add_bytes_per_s, speed.check_bytes_per_s, speed.prompt_macs_per_s,
          speed.section_seconds}) {
      ExpectMeasured(spread);
    }
    EXPECT_GE(speed.range_share.min, 0);
    EXPECT_LE(speed.range_share.max, 1);
  }
  for (const IoSpeed& read : profile.storage.reads) {
    ExpectMeasured(read.bytes_per_s);
    ExpectMeasured(read.cpu_seconds_per_read);
    ExpectMeasured(read.batch_seconds);
  }
}

TEST_F(HardwareProfilerTest, MeasuresEverythingAndLeavesNothing) {
  double last = 0;
  std::multiset<std::string> heard;
  const HardwareProfile profile =
      MeasureHardware(options_, [&](double done, const std::string& what) {
        EXPECT_GE(done, last);
        EXPECT_LE(done, 1);
        last = done;
        heard.insert(what);
      });
  EXPECT_TRUE(fs::is_empty(folder_));
  ExpectAllMeasured(profile);
  EXPECT_EQ(profile.rounds, 2);
  EXPECT_EQ(profile.cores.size(), AllowedCpus().size());
  EXPECT_EQ(profile.threads.front().threads, 1);
  EXPECT_EQ(profile.threads.back().threads, AvailableCpus());
  EXPECT_EQ(profile.probe_memory_bytes, uint64_t{16} << 20);
  EXPECT_EQ(profile.storage.file_bytes, uint64_t{16} << 20);
  EXPECT_EQ(profile.storage.directory, fs::canonical(folder_).string());
  EXPECT_GT(profile.storage.reads.size(), 30u);
  EXPECT_EQ(heard.count("matrix times token, 1 thread"), 2u);  // once per round
  EXPECT_NO_THROW(CheckIsThisMachine(profile, "hw"));
  // What is measured can be written, and what is written read.
  EXPECT_NO_THROW(HardwareFromJson(HardwareJson(profile), "hw"));
}

TEST_F(HardwareProfilerTest, EveryKindOfReadIsThereOnce) {
  const HardwareProfile profile = MeasureHardware(options_);
  const uint32_t alignment = profile.storage.alignment_bytes;
  std::set<std::tuple<uint64_t, int, uint64_t, int>> kinds;
  for (const IoSpeed& read : profile.storage.reads) {
    EXPECT_EQ(read.block_bytes % alignment, 0u);
    EXPECT_TRUE(
        kinds.insert({read.block_bytes, read.queue_depth, read.range_bytes, read.cpu}).second);
    EXPECT_LT(read.range_bytes, profile.storage.file_bytes);
  }
  for (const int depth : {1, 8, 32, 64}) EXPECT_TRUE(kinds.count({65536, depth, 0, -1})) << depth;
  EXPECT_TRUE(kinds.count({1 << 20, 1, 0, -1}));
  EXPECT_TRUE(kinds.count({4096, 32, 0, AllowedCpus().front()}));
}

TEST_F(HardwareProfilerTest, WhereTimeIsShortOneRoundIsMeasured) {
  options_.effort.total_seconds = 0;
  const HardwareProfile profile = MeasureHardware(options_);
  EXPECT_EQ(profile.rounds, 1);
  ExpectAllMeasured(profile);
}

TEST_F(HardwareProfilerTest, ReadsAFileInstead) {
  options_.file = MakeFile(9 << 20);
  options_.directory = "/nowhere";
  const HardwareProfile profile = MeasureHardware(options_);
  ExpectAllMeasured(profile);
  EXPECT_EQ(profile.storage.directory, fs::canonical(options_.file).string());
  EXPECT_EQ(profile.storage.file_bytes, 9u << 20);
  EXPECT_EQ(fs::file_size(options_.file), 9u << 20);
}

TEST_F(HardwareProfilerTest, WhatCannotBeMeasuredIsRefused) {
  const auto message = [&] {
    try {
      MeasureHardware(options_);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  options_.effort.file_bytes = uint64_t{1} << 60;
  EXPECT_THAT(message(), HasSubstr("free disk space"));
  options_.directory = "/nowhere";
  EXPECT_THAT(message(), HasSubstr("/nowhere: there is no such folder"));
  options_.effort.file_bytes = 1;
  EXPECT_THAT(message(), HasSubstr("no sense"));
  options_.effort.file_bytes = uint64_t{16} << 20;
  options_.file = MakeFile(1 << 20);
  EXPECT_THAT(message(), HasSubstr("at least 8.00 MiB"));
  options_.file = "/nowhere/model.gguf";
  EXPECT_THAT(message(), HasSubstr("cannot open"));
}

TEST_F(HardwareProfilerTest, ScratchFilesHaveNoName) {
  std::vector<double> shares;
  const ScratchFile file(folder_.string(), (uint64_t{9} << 20) + 5, 100,
                         [&](double share) { shares.push_back(share); });
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(file.size_bytes(), (9u << 20) + 5);
  EXPECT_EQ(OpenAsyncFile(file.path())->size_bytes(), (9u << 20) + 5);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(shares.back(), 1);
}

TEST_F(HardwareProfilerTest, ASlowDiskGetsASmallerScratchFile) {
  const ScratchFile file(folder_.string(), uint64_t{64} << 20, 0, {});
  EXPECT_EQ(file.size_bytes(), kLeastProbeFileBytes);
}

TEST(RunOnCpuTest, RunsThereAndHandsOnWhatIsThrown) {
  const int cpu = AllowedCpus().back();
  std::vector<int> allowed;
  RunOnCpu(cpu, [&] { allowed = AllowedCpus(); });
  EXPECT_EQ(allowed, std::vector<int>{cpu});
  EXPECT_GE(AllowedCpus().size(), allowed.size());
  const auto caller = std::this_thread::get_id();
  RunOnCpu(-1, [&] { EXPECT_EQ(std::this_thread::get_id(), caller); });
  EXPECT_THROW(RunOnCpu(cpu, [] { throw Error(ErrorCode::kIo, "here", "broken"); }), Error);
}

TEST(CoreSpeedTest, LittleCoresAreSlowInTheirBestRound) {
  std::vector<CoreSpeed> cores(4);
  cores[0].int8_macs_per_s = {100, 90, 110};
  cores[1].int8_macs_per_s = {30, 20, 105};  // disturbed, but as fast
  cores[2].int8_macs_per_s = {80, 79, 81};
  cores[3].int8_macs_per_s = {90, 80, 83};
  TellBigFromLittle(cores);
  EXPECT_TRUE(cores[0].is_big);
  EXPECT_TRUE(cores[1].is_big);
  EXPECT_FALSE(cores[2].is_big);
  EXPECT_TRUE(cores[3].is_big);
}

// A machine that nothing is wrong with.
HardwareProfile GoodMachine() {
  HardwareProfile profile = testing::SampleHardware();
  profile.isa = "avx512-vnni";
  profile.available_memory_bytes = uint64_t{64} << 30;
  profile.mlock_limit_bytes.reset();
  profile.load_average = 0;
  profile.machine_cpus = 2;
  profile.has_io_uring = true;
  profile.accelerators.clear();
  profile.cores.pop_back();
  for (ThreadSpeed& speed : profile.threads) {
    speed.read_bytes_per_s = {2e10 * speed.threads, 1.9e10 * speed.threads, 2.1e10 * speed.threads};
  }
  for (CoreSpeed& core : profile.cores) core.int8_macs_per_s = {1e11, 1e11, 1e11};
  for (IoSpeed& read : profile.storage.reads) read.bytes_per_s = {3e9, 3e9, 3e9};
  return profile;
}

TEST(HardwareWarningsTest, AGoodMachineHasNone) {
  EXPECT_THAT(HardwareWarnings(GoodMachine()), IsEmpty());
}

TEST(HardwareWarningsTest, EveryTroubleIsNamedAlone) {
  const auto only = [](const char* part, const std::function<void(HardwareProfile&)>& spoil) {
    HardwareProfile profile = GoodMachine();
    spoil(profile);
    const std::vector<std::string> warnings = HardwareWarnings(profile);
    ASSERT_EQ(warnings.size(), 1u) << part << " " << ::testing::PrintToString(warnings);
    EXPECT_THAT(warnings.front(), HasSubstr(part));
    EXPECT_THAT(warnings.front(), Not(::testing::EndsWith(".")));
  };
  only("of memory is free", [](auto& p) { p.available_memory_bytes = 1 << 30; });
  only("ulimit -l", [](auto& p) { p.mlock_limit_bytes = 8 << 20; });
  only("pread", [](auto& p) { p.has_io_uring = false; });
  only("no direct reads", [](auto& p) { p.storage.is_direct = false; });
  only("lies in memory",
       [](auto& p) { p.storage.is_in_memory = true, p.storage.is_direct = false; });
  only("load 9.0", [](auto& p) { p.load_average = 9, p.machine_cpus = 2; });
  only("bandwidth moved by 60%", [](auto& p) {
    p.threads[0].read_bytes_per_s = {2e10, 1e10, 2.2e10};
  });
  only("core's speed moved", [](auto& p) { p.cores[0].int8_macs_per_s.min = 1e10; });
  only("one thread reads",
       [](auto& p) { p.threads[0].read_bytes_per_s = p.threads[1].read_bytes_per_s; });
  only("one channel", [](auto& p) {
    p.threads[0].read_bytes_per_s = {5e9, 5e9, 5e9};
    p.threads[1].read_bytes_per_s = {1e10, 1e10, 1e10};
  });
  only("as on a disk that spins", [](auto& p) {
    for (IoSpeed& read : p.storage.reads) {
      if (read.block_bytes < 100000) read.bytes_per_s = {1e5, 1e5, 1e5};
    }
  });
  only("neurons per second", [](auto& p) {
    for (IoSpeed& read : p.storage.reads) {
      if (read.block_bytes < 100000) read.bytes_per_s = {5e7, 5e7, 5e7};
    }
  });
  only("MB/s at most", [](auto& p) {
    for (IoSpeed& read : p.storage.reads) {
      if (read.block_bytes > 100000) read.bytes_per_s = {4e8, 4e8, 4e8};
    }
  });
  only("no dot products", [](auto& p) { p.isa = "avx2"; });
  only("H100 is there", [](auto& p) { p.accelerators = {"NVIDIA H100"}; });
  only("1 of 2 cores", [](auto& p) {
    p.cores.push_back({1, {5e10, 5e10, 5e10}, {1e10, 1e10, 1e10}, {}, false});
  });
}

TEST(HardwarePlotTest, DrawsALinePerDepthAndRange) {
  const std::string svg = PlotReads(testing::SampleHardware());
  size_t lines = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 3u);
  EXPECT_THAT(svg, HasSubstr("32 at a time"));
  EXPECT_THAT(svg, HasSubstr("32, in 128M"));
  EXPECT_THAT(svg, HasSubstr("/somewhere"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(HardwarePlotTest, OneReadIsDrawnToo) {
  HardwareProfile profile = testing::SampleHardware();
  profile.storage.reads = {{4096, 1, 0, -1, {1e6, 1e6, 1e6}, {1e-6, 1e-6, 1e-6}}};
  EXPECT_THAT(PlotReads(profile), Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace hearth
