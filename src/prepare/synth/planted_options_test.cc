#include "prepare/synth/planted_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

double Sum(const std::vector<double>& rates, size_t count) {
  return std::accumulate(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(count), 0.0);
}

TEST(PlantedRatesTest, HaveTheMeanAndTheSkew) {
  for (const int64_t n : {768, 1000, 14336}) {
    for (const double mean : {0.01, 0.1, 0.2, 0.5}) {
      const SkewRange range = SkewRangeOf(mean);
      for (const double part : {0.0, 0.1, 0.5, 0.95, 1.0}) {
        const double skew = range.least + part * (range.greatest - range.least);
        SCOPED_TRACE(testing::Message() << n << " " << mean << " " << skew);
        const std::vector<double> rates = PowerLawRates(n, mean, skew);
        ASSERT_EQ(rates.size(), static_cast<size_t>(n));
        EXPECT_TRUE(std::is_sorted(rates.rbegin(), rates.rend()));
        EXPECT_LE(rates.front(), kMaxRate);
        EXPECT_GT(rates.back(), 0);
        const double sum = Sum(rates, rates.size());
        EXPECT_NEAR(sum / static_cast<double>(n), mean, 1e-6);
        const double hot = Sum(rates, static_cast<size_t>(skew * static_cast<double>(n) + 0.5));
        // Half a neuron is cut off or added.
        EXPECT_NEAR(hot / sum, 0.8, 0.5 * rates.front() / sum + 0.001);
      }
    }
  }
}

ModelShape Shape(FfnActivation activation) {
  ModelShape shape = FindShape("bamboo-7b");
  shape.activation = activation;
  return shape;
}

TEST(PlantedSharesTest, Defaults) {
  const PlantedShares drelu = DecideShares(Shape(FfnActivation::kDRelu), {});
  EXPECT_EQ(drelu.active, 0.1);
  EXPECT_EQ(drelu.gate, 0.2);
  EXPECT_EQ(drelu.skew, 0.28);
  EXPECT_EQ(drelu.rank, 256);
  const PlantedShares relu = DecideShares(Shape(FfnActivation::kRelu), {.active = 0.3});
  EXPECT_EQ(relu.gate, 0.3);
  // So many active neurons cannot be that few.
  const PlantedShares many = DecideShares(Shape(FfnActivation::kRelu), {.active = 0.6});
  EXPECT_GT(many.skew, 0.28);
  ModelShape narrow = Shape(FfnActivation::kRelu);
  narrow.hidden_size = 256;
  EXPECT_EQ(DecideShares(narrow, {}).rank, 64);
}

TEST(PlantedSharesTest, RefusesWhatCannotBe) {
  const auto refusal = [](FfnActivation activation, const PlantedOptions& options) -> std::string {
    try {
      DecideShares(Shape(activation), options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    ADD_FAILURE() << "was accepted";
    return "";
  };
  constexpr auto kDRelu = FfnActivation::kDRelu;
  EXPECT_THAT(refusal(FfnActivation::kSilu, {}), HasSubstr("silu"));
  EXPECT_THAT(refusal(FfnActivation::kSilu, {.active = 0.1}), HasSubstr("silu"));
  EXPECT_THAT(refusal(kDRelu, {.active = 0}), HasSubstr("active: "));
  EXPECT_THAT(refusal(kDRelu, {.active = 1}), HasSubstr("active: "));
  EXPECT_THAT(refusal(kDRelu, {.active = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("active: "));
  EXPECT_THAT(refusal(kDRelu, {.gate = 0.05}), HasSubstr("gate: "));
  EXPECT_THAT(refusal(kDRelu, {.gate = 0.95}), HasSubstr("gate: "));
  EXPECT_THAT(refusal(FfnActivation::kRelu, {.gate = 0.2}), HasSubstr("gate: "));
  EXPECT_THAT(refusal(FfnActivation::kFatRelu, {.gate = 0.2}), HasSubstr("leave it out"));
  EXPECT_THAT(refusal(kDRelu, {.skew = 0.01}), HasSubstr("skew: "));
  EXPECT_THAT(refusal(kDRelu, {.skew = 0.9}), HasSubstr("skew: "));
  EXPECT_THAT(refusal(kDRelu, {.rank = 100}), HasSubstr("rank: "));
  EXPECT_THAT(refusal(kDRelu, {.rank = 4096}), HasSubstr("rank: "));
  EXPECT_THAT(refusal(kDRelu, {.rank = -32}), HasSubstr("rank: "));
}

// Experts of silu are dense inside; their routers are planted.
TEST(PlantedSharesTest, ExpertsWithoutZeros) {
  const ModelShape shape = FindShape("qwen3-30b-a3b");
  EXPECT_TRUE(CanPlant(shape));
  EXPECT_EQ(DecideShares(shape, {}).rank, 0);
  EXPECT_GT(DecideShares(shape, {.locality = Locality::kHigh}).router_topic_share,
            DecideShares(shape, {}).router_topic_share);
  EXPECT_THROW(DecideShares(shape, {.active = 0.1}), Error);
  EXPECT_THROW(DecideShares(shape, {.skew = 0.3}), Error);
}

TEST(LocalityTest, NamesReadBack) {
  for (const Locality locality :
       {Locality::kHigh, Locality::kMedium, Locality::kLow, Locality::kMeasured}) {
    EXPECT_EQ(LocalityFromName(LocalityName(locality)), locality);
  }
  EXPECT_EQ(LocalityFromName("highest"), std::nullopt);
}

}  // namespace
}  // namespace hearth
