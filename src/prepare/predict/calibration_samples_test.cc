#include "prepare/predict/calibration_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "base/test_data.h"
#include "prepare/predict/ffn_data.h"

namespace hearth {
namespace {

// Rows as the engine shows them, by layer, expert and token of the text.
class Recorder : public PassObserver {
 public:
  using Key = std::tuple<int64_t, int64_t, int64_t>;

  void OnFfnInput(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                  FloatView residual, FloatView input) override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t token = first_ + tokens[i];
      const float* x = input.row(static_cast<int64_t>(i));
      inputs[{layer, expert, token}] = {x, x + input.cols};
      const float* r = residual.row(tokens[i]);
      residuals[{layer, expert, token}] = {r, r + residual.cols};
    }
  }
  void OnFfnActivation(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                       FloatView activation) override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const float* a = activation.row(static_cast<int64_t>(i));
      masses[{layer, expert, first_ + tokens[i]}] = {a, a + activation.cols};
    }
  }

  std::map<Key, std::vector<float>> inputs, residuals, masses;
  int64_t first_ = 0;
};

// Runs windows as CollectSamples says it does: BOS and context - 1 tokens.
Recorder Record(Engine& engine, const std::vector<TokenId>& text) {
  Recorder recorder;
  const TokenId bos = engine.model().tokenizer().special().bos;
  const size_t extra = bos >= 0 ? 1 : 0;
  const size_t piece = static_cast<size_t>(engine.context()) - extra;
  DenseSelector dense;
  for (size_t begin = 0; begin < text.size(); begin += piece) {
    std::vector<TokenId> window;
    if (extra > 0) window.push_back(bos);
    for (size_t i = begin; i < std::min(begin + piece, text.size()); ++i) window.push_back(text[i]);
    KvSequence kv(engine.kv_pool());
    const size_t chunk = static_cast<size_t>(engine.pass().limits().max_tokens);
    for (size_t at = 0; at < window.size(); at += chunk) {
      const BatchSequence sequence{
          &kv, std::span<const TokenId>(window).subspan(at, std::min(chunk, window.size() - at))};
      recorder.first_ = static_cast<int64_t>(begin + at) - static_cast<int64_t>(extra);
      engine.pass().Run({PassKind::kPrefill, {&sequence, 1}}, dense, &recorder);
    }
  }
  return recorder;
}

class CalibrationSamplesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.threads = 2;
    options.context = 40;
    options.batch_tokens = 16;
    engine_ = Engine::Load(SourcePath(GetParam()), options);
    const int64_t vocab = engine_->model().spec().vocab_size;
    for (int64_t i = 0; i < 100; ++i) {
      text_.push_back(static_cast<TokenId>(3 + i * i * 7 % (vocab - 3)));
    }
  }

  std::unique_ptr<Engine> engine_;
  std::vector<TokenId> text_;
};

TEST_P(CalibrationSamplesTest, AreWhatEntersTheFfnsInTheOrderOfTheText) {
  const ModelSpec& spec = engine_->model().spec();
  const Recorder expected = Record(*engine_, text_);
  std::vector<LayerSamples> layers;
  for (int l = 0; l < 2; ++l) {
    layers.emplace_back(engine_->budget(), 100, spec.hidden_size, spec.layers[0].ffn.num_experts,
                        true);
  }
  int64_t last = 0;
  CollectSamples(*engine_, text_, 0, layers, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 100);
    last = done;
  });
  EXPECT_EQ(last, 100);
  std::vector<float> row(static_cast<size_t>(spec.hidden_size));
  const FloatView out{row.data(), 1, spec.hidden_size, spec.hidden_size};
  int64_t rows = 0;
  for (const auto& [key, input] : expected.inputs) {
    const auto [layer, expert, token] = key;
    if (token < 0 || layer > 1) continue;  // the BOS of the first window
    const auto& of_expert = layers[static_cast<size_t>(layer)].TokensOf(expert);
    // A later window's BOS stands where the token before it does.
    if (!std::binary_search(of_expert.begin(), of_expert.end(), token)) continue;
    ++rows;
    const auto& expected_residual = expected.residuals.at(key);
    if (token % 39 == 38) continue;  // what the recorder kept may be the next BOS
    layers[static_cast<size_t>(layer)].Read(PredictorInput::kFfnInput, {&token, 1}, out);
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_NEAR(row[i], input[i], std::abs(input[i]) / 1000 + 1e-6);
    }
    layers[static_cast<size_t>(layer)].Read(PredictorInput::kResidual, {&token, 1}, out);
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_NEAR(row[i], expected_residual[i], std::abs(expected_residual[i]) / 1000 + 1e-6);
    }
  }
  const int64_t chosen = std::max<int64_t>(spec.layers[0].ffn.num_experts_per_token, 1);
  EXPECT_EQ(rows, 2 * 100 * chosen) << "every token of the text once for each of its experts";
}

TEST_P(CalibrationSamplesTest, DataSaysWhatTheModelSays) {
  const ModelSpec& spec = engine_->model().spec();
  const Recorder expected = Record(*engine_, text_);
  std::vector<LayerSamples> layers;
  layers.emplace_back(engine_->budget(), 100, spec.hidden_size, spec.layers[0].ffn.num_experts,
                      false);
  CollectSamples(*engine_, text_, 1, layers, {});
  const FfnMatrices matrices(*engine_, 1, 0);
  const FfnData data = ComputeFfnData(*engine_, matrices, layers[0], PredictorInput::kFfnInput, 30);
  // An expert that saw few tokens is shown all; tokens are ascending either way.
  ASSERT_EQ(data.fit_mass.rows(), 30);
  double difference = 0, size = 0;
  for (int64_t t = 0; t < 30; ++t) {
    const auto found = expected.masses.find({1, 0, t});
    if (found == expected.masses.end()) continue;
    for (int64_t n = 0; n < data.neurons(); ++n) {
      const double mass = std::abs(static_cast<double>(found->second[static_cast<size_t>(n)]));
      difference += std::abs(mass - static_cast<double>(data.fit_mass.row(t)[n]));
      size += mass;
    }
  }
  EXPECT_GT(size, 0);
  EXPECT_LT(difference, 0.01 * size) << "inputs were rounded to half precision, nothing else";
}

INSTANTIATE_TEST_SUITE_P(Models, CalibrationSamplesTest,
                         ::testing::Values("tests/goldens/llama-drelu.gguf",
                                           "tests/goldens/mixtral.gguf"),
                         [](const auto& tested) {
                           return std::string(tested.param).find("mixtral") == std::string::npos
                                      ? "dense"
                                      : "experts";
                         });

}  // namespace
}  // namespace hearth
