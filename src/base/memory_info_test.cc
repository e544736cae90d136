#include "base/memory_info.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"

namespace hearth {
namespace {

TEST(MemoryInfoTest, ResidentBytesFollowAllocations) {
  const uint64_t before = ResidentBytes();
  std::vector<char> block(64 << 20);
  std::memset(block.data(), 1, block.size());
  EXPECT_GT(ResidentBytes(), before + (48u << 20));
  EXPECT_GE(PeakResidentBytes(), before + (48u << 20));
  EXPECT_EQ(block[123], 1);
}

TEST(MemoryInfoTest, AProgramIsWhatItHasAndCodeThatItMayUse) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer takes several times the memory of its own";
#endif
  const uint64_t before = ProgramBytes();
  EXPECT_GE(before, ResidentBytes());
  EXPECT_LE(before, ResidentBytes() + (8u << 20));
  std::vector<char> block(64 << 20);
  std::memset(block.data(), 1, block.size());
  EXPECT_GT(ProgramBytes(), before + (48u << 20));
  EXPECT_LT(ProgramBytes(), before + (80u << 20));
  EXPECT_EQ(block[123], 1);
}

// Of an allocator that keeps what lies below something else.
TEST(MemoryInfoTest, AProgramIsNotWhatItFreed) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "its allocator does not give memory back";
#endif
  const uint64_t before = ProgramBytes();
  std::vector<std::vector<char>> blocks(1024);
  for (std::vector<char>& block : blocks) block.assign(64 << 10, 1);
  EXPECT_GT(ProgramBytes(), before + (48u << 20));
  blocks.erase(blocks.begin(), blocks.end() - 1);
  EXPECT_LT(ProgramBytes(), before + (16u << 20));
  EXPECT_EQ(blocks[0][123], 1);
}

TEST(MemoryInfoTest, AvailableIsPlausible) {
  EXPECT_GT(AvailableMemoryBytes(), uint64_t{16} << 20);
  EXPECT_LT(AvailableMemoryBytes(), uint64_t{1} << 50);
}

TEST(MemoryInfoTest, TotalIsMoreThanAvailable) {
  EXPECT_GE(TotalMemoryBytes(), AvailableMemoryBytes());
  EXPECT_GE(TotalMemoryBytes(), ResidentBytes());
}

TEST(CpuTest, AThreadStaysWhereItIsPinned) {
  const std::vector<int> cpus = AllowedCpus();
  ASSERT_GE(std::ssize(cpus), AvailableCpus());
  EXPECT_TRUE(std::is_sorted(cpus.begin(), cpus.end()));
  std::thread([&] {
    EXPECT_TRUE(PinThisThread(cpus.back()));
    EXPECT_EQ(AllowedCpus(), std::vector<int>{cpus.back()});
    EXPECT_FALSE(PinThisThread(-1));
    EXPECT_FALSE(PinThisThread(1 << 30));
  }).join();
  EXPECT_EQ(AllowedCpus(), cpus);
}

TEST(CpuTest, TheFirstLevelOfCachesIsNoLargerThanTheLast) {
  const uint64_t first = FirstLevelDataCacheBytes();
  EXPECT_LE(first, LastLevelCacheBytes());
  if (LastLevelCacheBytes() == 0) GTEST_SKIP() << "the system says nothing of caches";
  EXPECT_GE(first, 4096u);
  EXPECT_LE(first, uint64_t{1} << 20);
}

TEST(CpuTest, SeesAtLeastOneProcessor) {
  EXPECT_GE(AvailableCpus(), 1);
  EXPECT_FALSE(CpuModelName().empty());
  const CpuFeatures features = DetectCpuFeatures();
  EXPECT_TRUE(!features.avx512_vnni || features.avx512) << "VNNI comes with AVX-512";
}

// A group's directory with these files.
std::string GroupDirectory(const std::map<std::string, std::string>& files) {
  const std::string path = ::testing::TempDir() + "hearth_memory_group";
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  for (const auto& [name, text] : files) std::ofstream(path + "/" + name) << text;
  return path;
}

TEST(MemoryInfoTest, PageCacheOfAGroupCountsAsFree) {
  const std::string stat = "anon 50\ninactive_file 300\nactive_file 500\nfile_mapped 20\n";
  const std::string v2 = GroupDirectory(
      {{"memory.max", "1000\n"}, {"memory.current", "900\n"}, {"memory.stat", stat}});
  EXPECT_EQ(CgroupHeadroomBytes(v2, true), 100u + 780u);
  const std::string v1 = GroupDirectory(
      {{"memory.limit_in_bytes", "1000\n"},
       {"memory.usage_in_bytes", "900\n"},
       {"memory.stat", "active_file 1\ntotal_inactive_file 300\ntotal_active_file 500\n"}});
  EXPECT_EQ(CgroupHeadroomBytes(v1, false), 900u);
}

TEST(MemoryInfoTest, GroupsAreLimitedByTheLowerOfTwo) {
  const auto headroom = [](const std::string& most, const std::string& high) {
    return CgroupHeadroomBytes(
        GroupDirectory({{"memory.max", most}, {"memory.high", high}, {"memory.current", "400"}}),
        true);
  };
  EXPECT_EQ(headroom("1000", "max"), 600u);
  EXPECT_EQ(headroom("max", "700"), 300u);
  EXPECT_EQ(headroom("1000", "700"), 300u);
  EXPECT_EQ(headroom("300", "700"), 0u) << "it has more than it may";
  EXPECT_EQ(headroom("max", "max"), std::nullopt);
}

TEST(MemoryInfoTest, TheDefaultLeavesAShare) {
  EXPECT_GT(DefaultMemoryBytes(), AvailableMemoryBytes() / 2);
  EXPECT_LT(DefaultMemoryBytes(), ResidentBytes() + AvailableMemoryBytes());
  EXPECT_LE(AvailableMemoryBytes(), MemoryLimitBytes());
}

}  // namespace
}  // namespace hearth
