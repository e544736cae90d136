#include "prepare/profile/activation_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "measure/evaluate.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

class ActivationTrialTest : public ::testing::Test {
 protected:
  ActivationTrialTest() { WriteStoriesWithoutActivation(folder_.Path("silent.gguf")); }

  std::unique_ptr<Engine> Load(const std::string& path, const char* activation = nullptr) const {
    EngineOptions options;
    options.context = 200;
    options.threads = 1;
    if (activation != nullptr) options.activation = ParseActivation(activation);
    return Engine::Load(path, options);
  }
  static std::vector<TokenId> Text(const Engine& engine, size_t bytes) {
    const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
    return engine.model().tokenizer().Encode(text.substr(0, bytes));
  }

  TestFolder folder_{"activation_trial"};
};

TEST_F(ActivationTrialTest, NamesTheActivationThatAModelWasTrainedWith) {
  const auto engine = Load(folder_.Path("silent.gguf"));
  const std::vector<TokenId> text = Text(*engine, 3000);
  const auto trial = TryActivations(*engine, text);
  ASSERT_TRUE(trial.has_value());
  EXPECT_GE(trial->tokens, 200);
  EXPECT_LE(trial->tokens, 256);
  EXPECT_EQ(trial->scores.front().activation.activation, FfnActivation::kSilu);
  ASSERT_TRUE(trial->better.has_value());
  const ActivationScore& better = trial->scores[*trial->better];
  EXPECT_EQ(better.activation.activation, FfnActivation::kDRelu);
  EXPECT_LT(better.nll_per_token, 1.5);
  EXPECT_GT(trial->scores.front().nll_per_token, 4);
  EXPECT_THAT(ActivationTrialText(*trial), HasSubstr("tokens: silu "));
}

TEST_F(ActivationTrialTest, SaysNothingOfAModelThatRunsAsItWasTrained) {
  const auto engine = Load(SourcePath("models/hearth-stories-5m.gguf"));
  const auto trial = TryActivations(*engine, Text(*engine, 3000));
  ASSERT_TRUE(trial.has_value());
  EXPECT_EQ(trial->scores.front().activation.activation, FfnActivation::kDRelu);
  EXPECT_EQ(trial->scores.size(), 4u);
  EXPECT_FALSE(trial->better.has_value());
}

TEST_F(ActivationTrialTest, NothingIsClearOnRandomWeights) {
  MakeModel(folder_.Path("random.gguf"), ShapeText(64, 192, kDenseShape), DType::kF16);
  const auto engine = Load(folder_.Path("random.gguf"));
  const auto trial = TryActivations(*engine, std::vector<TokenId>(100, 7));
  ASSERT_TRUE(trial.has_value());
  EXPECT_FALSE(trial->better.has_value()) << ActivationTrialText(*trial);
}

TEST_F(ActivationTrialTest, LeavesTheEngineAsItWas) {
  const auto engine = Load(folder_.Path("silent.gguf"), "fatrelu:0.5");
  const std::vector<TokenId> text = Text(*engine, 1000);
  const double before = EvaluateText(*engine, text).nll_per_token;
  EXPECT_EQ(TryActivations(*engine, text)->scores.front().activation,
            ParseActivation("fatrelu:0.5"));
  EXPECT_EQ(EvaluateText(*engine, text).nll_per_token, before);
  EXPECT_THROW(TryActivations(*engine, text,
                              [](uint64_t done, uint64_t) {
                                if (done > 300) throw std::runtime_error("stopped");
                              }),
               std::runtime_error);
  EXPECT_EQ(EvaluateText(*engine, text).nll_per_token, before);
  EXPECT_EQ(engine->model().spec().layers.back().ffn.threshold, 0.5f);
}

TEST_F(ActivationTrialTest, AFewTokensTellNothing) {
  const auto engine = Load(folder_.Path("silent.gguf"));
  EXPECT_FALSE(TryActivations(*engine, std::vector<TokenId>(15, 300)).has_value());
}

}  // namespace
}  // namespace hearth
