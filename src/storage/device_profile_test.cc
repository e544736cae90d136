#include "storage/device_profile.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/random_words.h"

namespace hearth {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// MB/s of 20,000 random reads of a block size in a range, all issued at once by queues that take
// turns, one for each core given.
double RandomRate(const DeviceProfile& profile, uint64_t block, uint64_t range,
                  const std::vector<int>& cores) {
  DeviceModel model(profile);
  RandomWords random(1);
  constexpr int kReads = 20000;
  int64_t end_ns = 0;
  for (int i = 0; i < kReads; ++i) {
    const int queue = i % static_cast<int>(cores.size());
    const uint64_t offset = random.NextBelow(range / block) * block;
    end_ns = model.Serve({offset, block, queue, cores[static_cast<size_t>(queue)]}, 0);
  }
  return static_cast<double>(block) * kReads / (static_cast<double>(end_ns) / 1e9) / 1e6;
}

double SequentialRate(const DeviceProfile& profile, uint64_t block) {
  DeviceModel model(profile);
  constexpr int kReads = 1000;
  int64_t end_ns = 0;
  for (uint64_t i = 0; i < kReads; ++i) end_ns = model.Serve({i * block, block, 0, 0}, 0);
  return static_cast<double>(block) * kReads / (static_cast<double>(end_ns) / 1e9) / 1e6;
}

constexpr int kBig = static_cast<int>(PhoneCore::kBig);
constexpr int kMid = static_cast<int>(PhoneCore::kMid);
constexpr int kLittle = static_cast<int>(PhoneCore::kLittle);

// PowerInfer-2, Table 1: 4 KB random reads on a range of 128 MB.
TEST(Ufs40, GivesTheRatesOfTable1) {
  const auto rate = [](const std::vector<int>& cores) {
    return RandomRate(Ufs40(), 4096, 128 * kMiB, cores);
  };
  EXPECT_NEAR(rate({kBig}), 1076.10, 1);
  EXPECT_NEAR(rate({kMid}), 1007.95, 1);
  EXPECT_NEAR(rate({kLittle}), 761.87, 1);
  EXPECT_NEAR(rate({kBig, kMid}), 802.42, 1);
  EXPECT_NEAR(rate({kBig, kMid, kMid, kMid}), 613.74, 1);
}

// Section 2.3.1 and 2.3.2.
TEST(Ufs40, GivesTheRatesOfTheText) {
  const uint64_t whole = uint64_t{200} << 30;
  EXPECT_NEAR(SequentialRate(Ufs40(), 512 << 10), 4000, 5);
  EXPECT_NEAR(RandomRate(Ufs40(), 512 << 10, whole, {kBig}), 3500, 5);
  EXPECT_NEAR(RandomRate(Ufs40(), 4096, whole, {kBig}), 450, 1);
  // Ranges are those of the last 32 reads, a little less than what they are drawn from.
  EXPECT_NEAR(RandomRate(Ufs40(), 4096, 512 * kMiB, {kBig}), 850, 15);
  double last = 1e9;
  for (const uint64_t range : {128 * kMiB, 256 * kMiB, 512 * kMiB, 4096 * kMiB, whole}) {
    const double rate = RandomRate(Ufs40(), 4096, range, {kBig});
    EXPECT_LT(rate, last);
    last = rate;
  }
  // In 128 MB, 4 KB blocks beat 8 and 12 KB: two reads of half a bundle beat one of the whole.
  for (const uint64_t block : {8192, 12288}) {
    EXPECT_LT(RandomRate(Ufs40(), block, 128 * kMiB, {kBig}),
              RandomRate(Ufs40(), 4096, 128 * kMiB, {kBig}));
  }
}

TEST(Ufs40, LargerBlocksAreFasterElsewhere) {
  double random = 0;
  double sequential = 0;
  for (uint64_t block = 4096; block <= 512 << 10; block *= 2) {
    const double random_now = RandomRate(Ufs40(), block, uint64_t{100} << 30, {kBig});
    const double sequential_now = SequentialRate(Ufs40(), block);
    EXPECT_GT(random_now, random);
    EXPECT_GT(sequential_now, sequential);
    EXPECT_GT(sequential_now, random_now);
    random = random_now;
    sequential = sequential_now;
  }
}

DeviceProfile FlatProfile() {
  DeviceProfile flat;
  flat.name = "flat";
  flat.random = {{1000, 1e9}};  // 1 ns per byte, at least 1 us
  return flat;
}

TEST(DeviceModel, ServesOneReadAfterTheOther) {
  DeviceModel model(FlatProfile());
  EXPECT_EQ(model.Serve({0, 2000, 0, 0}, 100), 2100);
  EXPECT_EQ(model.Serve({90000, 3000, 1, 0}, 200), 5100);
  EXPECT_EQ(model.Serve({50000, 1, 0, 0}, 10000), 11000);  // as long as the smallest block
}

TEST(DeviceModel, LatencyDelaysAReadButNotTheNext) {
  DeviceProfile profile = FlatProfile();
  profile.latency_seconds = 50e-6;
  profile.latency_per_byte = 1e-9;
  DeviceModel model(profile);
  EXPECT_EQ(model.Serve({0, 2000, 0, 0}, 0), 2000 + 52000);
  EXPECT_EQ(model.Serve({90000, 2000, 0, 0}, 0), 4000 + 52000);
}

TEST(DeviceModel, KeepsToTheLimits) {
  DeviceProfile profile = FlatProfile();
  profile.max_reads_per_second = 1e5;
  EXPECT_EQ(DeviceModel(profile).Serve({0, 2000, 0, 0}, 0), 10000);
  EXPECT_EQ(DeviceModel(profile).Serve({0, 20000, 0, 0}, 0), 20000);
  profile.max_bytes_per_second = 1e8;
  EXPECT_EQ(DeviceModel(profile).Serve({0, 20000, 0, 0}, 0), 200000);
}

TEST(DeviceModel, SeveralCommandQueuesNeedSeveralReadsToBeFast) {
  DeviceProfile profile = FlatProfile();
  profile.command_queues = 4;
  DeviceModel model(profile);
  EXPECT_EQ(model.Serve({0, 2000, 0, 0}, 0), 8000);
  int64_t end_ns = 0;
  for (int i = 0; i < 7; ++i) end_ns = model.Serve({90000, 2000, 0, 0}, 0);
  EXPECT_EQ(end_ns, 16000);
}

TEST(DeviceModel, InterpolatesInLogarithms) {
  DeviceProfile profile = FlatProfile();
  profile.random = {{1000, 1e8}, {100000, 1e9}};
  // Halfway between the blocks is halfway between the rates: 10 KB at 316 MB/s.
  EXPECT_NEAR(static_cast<double>(DeviceModel(profile).Serve({0, 10000, 0, 0}, 0)), 31623, 1);
  EXPECT_EQ(DeviceModel(profile).Serve({0, 1000000, 0, 0}, 0), 1000000);
}

TEST(CheckProfile, RefusesWhatContradictsItself) {
  const std::vector<std::function<void(DeviceProfile&)>> mistakes = {
      [](DeviceProfile& p) { p.random.clear(); },
      [](DeviceProfile& p) {
        p.random = {{2000, 1e9}, {2000, 2e9}};
      },
      [](DeviceProfile& p) {
        p.random = {{0, 1e9}};
      },
      [](DeviceProfile& p) {
        p.sequential = {{4096, 0}};
      },
      [](DeviceProfile& p) {
        p.random_in_range = {{4096, -1}};
      },
      [](DeviceProfile& p) { p.latency_seconds = -1; },
      [](DeviceProfile& p) { p.max_reads_per_second = 0.0 / 0.0; },
      [](DeviceProfile& p) {
        p.core_seconds = {0, -1};
      },
      [](DeviceProfile& p) { p.contention_seconds = {-1}; },
      [](DeviceProfile& p) { p.command_queues = 0; },
      [](DeviceProfile& p) { p.window_reads = 65; },
  };
  CheckProfile(FlatProfile());
  CheckProfile(Ufs40());
  for (const auto& mistake : mistakes) {
    DeviceProfile profile = FlatProfile();
    mistake(profile);
    EXPECT_THROW(CheckProfile(profile), Error);
  }
}

}  // namespace
}  // namespace hearth
