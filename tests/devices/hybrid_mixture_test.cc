// A packed mixture of experts with the hottest neurons of each expert on a device (P1 §5.3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hybrid_models.h"
#include "measure/topic_walk.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/synth.h"
#include "test_budgets.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::SizeIs;

constexpr int64_t kMixtureLayers = 3, kExperts = 4, kNeuronsOfExpert = 704;

class HybridMixtureTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const DType quant : {DType::kF16, DType::kQ4_0}) {
      // The second one has FFNs that are large beside what streaming takes.
      const ModelShape shape = ParseShape(
          R"({"arch": "mixtral", "hidden_size": 256, "num_layers": 3, "num_heads": 4,
              "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000, "activation": "relu",
              "num_experts": 4, "num_experts_per_token": 2, "intermediate_size": )" +
              std::to_string(quant == DType::kF16 ? kNeuronsOfExpert : 4096) + "}",
          "mixture");
      SynthesizeModel(shape,
                      {.quant = quant, .threads = 2, .planted = PlantedOptions(), .packed = true},
                      Path(quant));
    }
  }
  static void TearDownTestSuite() {
    for (const DType quant : {DType::kF16, DType::kQ4_0}) std::filesystem::remove(Path(quant));
  }
  void SetUp() override { HEARTH_NEED_DEVICE(); }

  static std::string Path(DType quant) {
    return PathOf(quant == DType::kF16 ? "hybrid_mixture_f16.gguf" : "hybrid_mixture_q4_0.gguf");
  }

  static EngineOptions Options(FfnMode mode, std::optional<DeviceRequest> device) {
    EngineOptions options = {
        .program_bytes = kTestProgramBytes, .threads = 2, .context = 64, .mode = mode};
    if (device) options.device = *device;
    return options;
  }

  // After every token of a walk, in passes of `chunk` tokens.
  static std::vector<float> LogitsOf(Engine& engine, size_t chunk) {
    const Model& model = engine.model();
    const std::vector<TokenId> text =
        TopicWalk(*TopicMap::FromMetadata(model.metadata(), model.spec().vocab_size)).Take(13);
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0; begin < text.size(); begin += chunk) {
      const size_t count = std::min(chunk, text.size() - begin);
      const BatchSequence sequence{&kv, std::span(text).subspan(begin, count)};
      engine.pass().Run(ShapeOf(sequence), engine.selector());
      const FloatView logits = engine.pass().Logits(0, static_cast<int64_t>(count));
      for (int64_t i = 0; i < logits.rows; ++i) {
        all.insert(all.end(), logits.row(i), logits.row(i) + logits.cols);
      }
    }
    return all;
  }
};

TEST_F(HybridMixtureTest, LogitsAreTheProcessorsWithinRounding) {
  for (const FfnMode mode : {FfnMode::kDense, FfnMode::kGated, FfnMode::kPredicted}) {
    for (const size_t chunk : {size_t{1}, size_t{13}}) {
      const std::vector<float> expected =
          LogitsOf(*Engine::Load(Path(DType::kF16), Options(mode, {})), chunk);
      for (const int64_t placed : {int64_t{1}, int64_t{70}, int64_t{352}, kNeuronsOfExpert}) {
        SCOPED_TRACE(::testing::Message() << FfnModeName(mode) << " " << chunk << " " << placed);
        const auto engine = Engine::Load(Path(DType::kF16), Options(mode, RequestOf(placed)));
        const DevicePart& part = *engine->device().part;
        EXPECT_THAT(part.layer_neurons(), AllOf(SizeIs(kMixtureLayers), Each(placed)));
        EXPECT_THAT(part.ffns()->shape().neurons, SizeIs(kMixtureLayers * kExperts));
        const std::vector<float> logits = LogitsOf(*engine, chunk);
        EXPECT_LT(RelativeError(logits, expected), 1e-3);
        if (mode != FfnMode::kPredicted) {  // two experts of each token
          EXPECT_EQ(part.ffns()->neurons_computed(), 13 * kMixtureLayers * 2 * placed);
          EXPECT_EQ(engine->pass().ffn_counts().gate,
                    13 * kMixtureLayers * 2 * (kNeuronsOfExpert - placed));
        }
        EXPECT_EQ(LogitsOf(*engine, chunk), logits) << "the same bits again";
      }
    }
  }
}

// Attention lies there too; predictors of experts, and routers, stay here.
TEST_F(HybridMixtureTest, WhatEveryTokenReadsGoesThereFirst) {
  const std::vector<float> expected =
      LogitsOf(*Engine::Load(Path(DType::kF16), Options(FfnMode::kPredicted, {})), 1);
  const auto engine =
      Engine::Load(Path(DType::kF16), Options(FfnMode::kPredicted, RequestOf(std::nullopt)));
  const DevicePart& part = *engine->device().part;
  EXPECT_THAT(part.layer_neurons(), Each(kNeuronsOfExpert));
  for (const PlacedLayer& layer : part.placement().layers) {
    EXPECT_TRUE(layer.attention);
    EXPECT_FALSE(layer.predictor);
  }
  EXPECT_LT(RelativeError(LogitsOf(*engine, 1), expected), 3e-2);
}

TEST_F(HybridMixtureTest, WhatIsThereIsNotHere) {
  const auto here = [&](std::optional<DeviceRequest> device) {
    const auto engine = Engine::Load(Path(DType::kQ4_0), Options(FfnMode::kGated, device));
    if (engine->device().part) {
      const DevicePart& part = *engine->device().part;
      EXPECT_EQ(part.device().memory().Ledger().at("neurons"),
                accel::DeviceFfns::NeuronBytes(part.ffns()->shape()));
    }
    return engine->budget().Ledger().at("weights");
  };
  // Rows of Q4_0 with 256 columns, 144 bytes, in memory on multiples of 64.
  const auto taken = static_cast<double>(here({}) - here(RequestOf(200)));
  EXPECT_NEAR(taken, 3.0 * 144 * kMixtureLayers * kExperts * 200, 0.4 * taken);
}

TEST_F(HybridMixtureTest, StreamingChangesNoBit) {
  for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated, FfnMode::kDense}) {
    SCOPED_TRACE(FfnModeName(mode));
    EngineOptions options = Options(mode, RequestOf(900));
    const std::vector<float> expected = LogitsOf(*Engine::Load(Path(DType::kQ4_0), options), 1);
    options.memory_bytes = SmallestLimit(Path(DType::kQ4_0), options) + 4 * kMiB;
    for (const int threads : {1, 3}) {
      options.threads = threads;
      const auto engine = Engine::Load(Path(DType::kQ4_0), options);
      ASSERT_NE(engine->streamed(), nullptr);
      EXPECT_EQ(LogitsOf(*engine, 1), expected) << threads;
      EXPECT_GT(engine->stream_counts().bytes_read, 0u);
    }
  }
}

}  // namespace
}  // namespace hearth
