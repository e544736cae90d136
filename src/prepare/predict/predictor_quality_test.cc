#include "prepare/predict/predictor_quality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/test_data.h"
#include "measure/evaluate.h"
#include "prepare/predict/held_predictors.h"
#include "sparsity/predictor_selector.h"

namespace hearth {
namespace {

class PredictorQualityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.threads = 2;
    engine_ = Engine::Load(SourcePath("models/hearth-stories-5m.gguf"), options);
    text_ =
        engine_->model().tokenizer().Encode(ReadWholeFile(SourcePath("models/hearth-stories.txt")));
    text_.resize(600);
  }

  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> text_;
};

// Lists every second neuron of every token.
class EverySecond : public ActivationSelector {
 public:
  explicit EverySecond(int64_t neurons) {
    for (int32_t n = 0; n < neurons; n += 2) list_.push_back(n);
  }
  void Select(const SelectionQuery& query, ActiveSets& out) override {
    for (auto& list : out.ResetLists(query.tokens.size())) list = list_;
  }

 private:
  std::vector<int32_t> list_;
};

TEST_F(PredictorQualityTest, AllNeuronsChangeNothing) {
  DenseSelector dense;
  const PredictionQuality quality = MeasurePrediction(*engine_, text_, dense);
  const EvalResult expected = EvaluateText(*engine_, text_);
  EXPECT_EQ(quality.tokens, expected.tokens);
  EXPECT_NEAR(quality.dense_nll, expected.nll_per_token, 1e-9);
  EXPECT_EQ(quality.predicted_nll, quality.dense_nll);
  EXPECT_EQ(quality.top1_agreement, 1);
  const ListQuality total = quality.Total();
  EXPECT_EQ(total.computed_share(), 1);
  EXPECT_EQ(total.recall(), 1);
  EXPECT_NEAR(total.precision(), total.active_share(), 1e-12);
  EXPECT_NEAR(total.active_share(), *expected.quality.active, 1e-3);
}

TEST_F(PredictorQualityTest, HalfOfTheNeuronsAreHalfOfTheMass) {
  const int64_t neurons = engine_->model().spec().layers[0].ffn.intermediate_size;
  EverySecond half(neurons);
  const PredictionQuality quality = MeasurePrediction(*engine_, text_, half);
  EXPECT_EQ(quality.Total().computed_share(), 0.5);
  EXPECT_NEAR(quality.Total().recall(), 0.5, 0.1);
  EXPECT_NEAR(quality.Total().precision(), quality.Total().active_share(), 0.03);
  EXPECT_GT(quality.predicted_nll, quality.dense_nll + 0.5);
  EXPECT_LT(quality.top1_agreement, 0.9);
}

// Gate rows themselves as predictors of full rank: what they list is what their gates say.
TEST_F(PredictorQualityTest, HeldPredictorsListWhatTheirWeightsSay) {
  const ModelSpec& spec = engine_->model().spec();
  PredictorSet set;
  set.dtype = DType::kF32;
  set.ffns.resize(static_cast<size_t>(spec.num_layers));
  const int64_t hidden = spec.hidden_size, neurons = spec.layers[0].ffn.intermediate_size;
  MadePredictor made;
  made.rank = 32;
  made.down.assign(static_cast<size_t>(32 * hidden), 0.0f);
  made.up.assign(static_cast<size_t>(neurons * 32), 0.0f);
  for (int64_t n = 0; n < neurons; ++n) made.bias.push_back(n % 3 == 0 ? 1.0f : -1.0f);
  set.ffns[1] = QuantizePredictor(made, set.dtype);
  HeldPredictors held(set, spec, engine_->budget());
  PredictorSelector selector(spec, held.predictors(), engine_->compute(), engine_->budget(), 256);
  const PredictionQuality quality = MeasurePrediction(*engine_, text_, selector);
  EXPECT_EQ(quality.layers[0].computed_share(), 1) << "no predictor: all";
  EXPECT_NEAR(quality.layers[1].computed_share(), 1.0 / 3, 0.001);
  held.SetThreshold(1, 0, 2);
  EXPECT_EQ(MeasurePrediction(*engine_, text_, selector).layers[1].listed, 0u);
}

TEST_F(PredictorQualityTest, SetsThatDoNotFitAreRefused) {
  const ModelSpec& spec = engine_->model().spec();
  PredictorSet set;
  EXPECT_THROW(HeldPredictors(set, spec, engine_->budget()), Error);
  set.ffns.resize(static_cast<size_t>(spec.num_layers));
  EXPECT_NO_THROW(HeldPredictors(set, spec, engine_->budget()));
  set.ffns[0].rank = 32;
  EXPECT_THROW(HeldPredictors(set, spec, engine_->budget()), Error);
  DenseSelector dense;
  EXPECT_THROW(MeasurePrediction(*engine_, {}, dense), Error);
}

}  // namespace
}  // namespace hearth
