#include "prepare/pack/mode_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "measure/bench.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

FfnMode Choose(ModeSpeed gated, ModeSpeed predicted) {
  gated.mode = FfnMode::kGated;
  predicted.mode = FfnMode::kPredicted;
  const ModeSpeed speeds[] = {{FfnMode::kDense, 10, 100}, gated, predicted};
  return ChooseMode(speeds);
}

TEST(ModeChoiceTest, TheFastestIsTakenAndTiesGoToTheMoreExact) {
  const auto speed = [](double decode, double prefill) {
    return ModeSpeed{FfnMode::kDense, decode, prefill};
  };
  EXPECT_EQ(Choose(speed(15, 150), speed(20, 150)), FfnMode::kPredicted);
  EXPECT_EQ(Choose(speed(15, 150), speed(15.4, 150)), FfnMode::kGated);
  EXPECT_EQ(Choose(speed(10.2, 150), speed(9, 150)), FfnMode::kDense);
  EXPECT_EQ(Choose(speed(9, 150), speed(11, 150)), FfnMode::kPredicted);
  // What makes prompts slower is not taken, however fast it decodes.
  EXPECT_EQ(Choose(speed(15, 90), speed(20, 90)), FfnMode::kDense);
  EXPECT_EQ(Choose(speed(15, 98), speed(9, 98)), FfnMode::kGated);
}

TEST(ModeChoiceTest, EveryModeIsMeasured) {
  const TestFolder folder("hearth_modes");
  MakeModel(folder.Path("m"), ShapeText(64, 96, R"("arch": "llama", "activation": "relu")"),
            DType::kQ8_0);
  PackModel(GgufFile::Open(folder.Path("m")), {}, folder.Path("p"));
  const auto engine = Engine::Load(folder.Path("p"), {.threads = 1, .context = 128});
  const std::vector<TokenId> tokens = BenchTokens(engine->model(), kModeTokens);
  const FfnMode modes[] = {FfnMode::kDense, FfnMode::kGated};
  double done = 0;
  const auto speeds = MeasureModes(*engine, tokens, modes, [&](double share) { done = share; });
  ASSERT_EQ(speeds.size(), 2u);
  EXPECT_EQ(speeds[1].mode, FfnMode::kGated);
  for (const ModeSpeed& speed : speeds) {
    EXPECT_GT(speed.decode_tok_s, 0);
    EXPECT_GT(speed.prefill_tok_s, 0);
  }
  EXPECT_EQ(done, 1);
  EXPECT_THROW(MeasureModes(*engine, std::span(tokens).first(9), modes), Error);
}

}  // namespace
}  // namespace hearth
