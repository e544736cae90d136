#include "planner/doctor/batch_speed.h"

#include <gtest/gtest.h>

#include "accel/test_device.h"

namespace hearth {
namespace {

// A device ten times as fast, and one that is faster only with many tokens.
constexpr double kGiga = 1e9;

TEST(UploadTokensTest, IsWhereTheDeviceCatchesUp) {
  const std::vector<BatchSpeed> speeds = {{1, 10 * kGiga, 100 * kGiga},
                                          {16, 10 * kGiga, 200 * kGiga},
                                          {64, 10 * kGiga, 200 * kGiga},
                                          {256, 10 * kGiga, 200 * kGiga}};
  // Reading a weight takes 0.5625 / 1e9 s; n tokens on the processor n / 10e9.
  EXPECT_EQ(UploadTokens(speeds, {.read_bytes_per_s = kGiga, .upload_bytes_per_s = 8 * kGiga}), 16);
  EXPECT_EQ(UploadTokens(speeds, {.read_bytes_per_s = 4 * kGiga, .upload_bytes_per_s = kGiga}), 16);
  EXPECT_EQ(UploadTokens(speeds, {.read_bytes_per_s = kGiga / 4, .upload_bytes_per_s = kGiga}), 64);
  EXPECT_EQ(UploadTokens(speeds, {.read_bytes_per_s = kGiga / 64, .upload_bytes_per_s = kGiga}),
            std::nullopt);
  EXPECT_EQ(
      UploadTokens(speeds, {.read_bytes_per_s = 10 * kGiga, .upload_bytes_per_s = 10 * kGiga}), 1);
}

TEST(UploadTokensTest, IsNothingWhereTheProcessorIsFasterInTheEnd) {
  const std::vector<BatchSpeed> speeds = {{1, 1, 2}, {16, 10, 20}, {64, 30, 20}};
  EXPECT_EQ(UploadTokens(speeds, {.read_bytes_per_s = 1e18, .upload_bytes_per_s = 1e18}),
            std::nullopt);
  EXPECT_EQ(UploadTokens({}, {.read_bytes_per_s = 1, .upload_bytes_per_s = 1}), std::nullopt);
}

TEST(BatchSpeedTest, BothSidesAreMeasured) {
  HEARTH_NEED_DEVICE();
  const std::vector<BatchSpeed> speeds =
      MeasureBatches(accel::testing::TestDeviceIndex(), {.rounds = 1, .seconds = 0},
                     accel::testing::TestProgramsFolder());
  ASSERT_EQ(speeds.size(), 9);
  for (size_t i = 0; i < speeds.size(); ++i) {
    EXPECT_EQ(speeds[i].tokens, int64_t{1} << i);
    EXPECT_GT(speeds[i].processor_macs_per_s, 0);
    EXPECT_GT(speeds[i].device_macs_per_s, 0);
  }
}

}  // namespace
}  // namespace hearth
