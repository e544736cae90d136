#include "prepare/synth/planted_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "prepare/synth/planted_options.h"
#include "prepare/synth/test_planted_shape.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

ModelShape Relu() { return SmallShape(R"("activation": "relu")"); }
ModelShape DRelu() { return SmallShape(R"("activation": "drelu")"); }
ModelShape Experts() {
  return SmallShape(R"("activation": "silu", "num_experts": 32, "num_experts_per_token": 4)");
}

RecordedFigures Neurons(double active, double hot_share, double found) {
  return {AccessUnit::kNeurons, {active, hot_share, found}, 1024};
}

TEST(PlantedFitTest, FindsNeuronsOfMostFigures) {
  for (const ModelShape& shape : {Relu(), DRelu()}) {
    const double gates = shape.activation == FfnActivation::kDRelu ? 1.5 : 1;  // per active
    for (const AccessFigures& wanted :
         {AccessFigures{0.1, 0.28, 0.95}, AccessFigures{0.1, 0.64, 0.68},
          AccessFigures{0.3, 0.5, 0.85}, AccessFigures{0.02, 0.3, 0.9}}) {
      const PlantedFit fit = FitNeurons(
          shape, {.wanted = wanted, .gate = gates * wanted.active, .tokens = kMostFitTokens});
      EXPECT_NEAR(fit.reached.active, wanted.active, 0.1 * wanted.active);
      EXPECT_NEAR(fit.reached.hot_share, wanted.hot_share, 0.02) << wanted.found;
      EXPECT_NEAR(fit.reached.found, wanted.found, 0.01) << wanted.hot_share;
    }
  }
}

// What no planted model shows comes out as near as it gets.
TEST(PlantedFitTest, SaysWhatItReaches) {
  const PlantedFit fit =
      FitNeurons(Relu(), {.wanted = {0.1, 0.64, 0.2}, .gate = 0.1, .tokens = kMostFitTokens});
  EXPECT_GT(fit.reached.found, 0.5);
  EXPECT_LT(fit.topic_share, 0.01);
}

TEST(PlantedFitTest, FindsRouters) {
  const AccessFigures wanted = {0.125, 0.45, 0.6};
  const PlantedFit fit = FitRouter(Experts(), {.wanted = wanted, .tokens = 512});
  EXPECT_NEAR(fit.reached.hot_share, wanted.hot_share, 0.02);
  EXPECT_NEAR(fit.reached.found, wanted.found, 0.02);
}

TEST(PlantedFitTest, ATraceDecidesShares) {
  const PlantedShares shares = DecideShares(Relu(), {.like = Neurons(0.2, 0.5, 0.8)});
  EXPECT_EQ(shares.active, 0.2);
  EXPECT_EQ(shares.gate, 0.2);
  ASSERT_TRUE(shares.reached.has_value());
  EXPECT_NEAR(shares.reached->found, 0.8, 0.01);
  const PlantedShares measured = DecideShares(DRelu(), {.locality = Locality::kMeasured});
  EXPECT_EQ(measured.active, 0.1);
  EXPECT_NEAR(measured.reached->found, kMeasuredFigures.found, 0.01);
  EXPECT_LT(measured.topic_share, DecideShares(DRelu(), {.locality = Locality::kLow}).topic_share);
}

TEST(PlantedFitTest, RefusesWhatATraceIsNotOf) {
  const auto refusal = [](const ModelShape& shape, const PlantedOptions& options) -> std::string {
    try {
      DecideShares(shape, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "accepted";
  };
  const RecordedFigures experts = {AccessUnit::kExperts, {0.1, 0.4, 0.6}, 128};
  EXPECT_THAT(refusal(Relu(), {.like = experts}), HasSubstr("has none"));
  EXPECT_THAT(refusal(Experts(), {.like = Neurons(0.1, 0.3, 0.9)}), HasSubstr("never zero"));
  EXPECT_THAT(refusal(Experts(), {.locality = Locality::kMeasured}), HasSubstr("of neurons"));
  EXPECT_THAT(refusal(Relu(), {.skew = 0.3, .like = Neurons(0.1, 0.3, 0.9)}),
              HasSubstr("leave out"));
  EXPECT_THAT(refusal(Relu(), {.locality = Locality::kLow, .like = Neurons(0.1, 0.3, 0.9)}),
              HasSubstr("leave out"));
}

TEST(PlantedFitTest, RefusesNeuronsInExperts) {
  AccessSequence sequence;
  sequence.num_layers = 1;
  sequence.num_experts = 2;
  sequence.num_neurons = 4;
  EXPECT_THROW(RecordedFrom(sequence), Error);
}

}  // namespace
}  // namespace hearth
