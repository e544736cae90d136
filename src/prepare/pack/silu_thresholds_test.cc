#include "prepare/pack/silu_thresholds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "pass/test_passes.h"
#include "prepare/pack/test_pack_models.h"
#include "prepare/pack/text_parts.h"

namespace hearth {
namespace {

using testing::Each;
using testing::Ge;
using testing::HasSubstr;

class SiluThresholdsTest : public testing::Test {
 protected:
  static constexpr const char* kReluShape = R"("arch": "llama", "activation": "relu")";

  std::unique_ptr<Engine> Load(const std::string& name, EngineOptions options = {}) const {
    options.context = 64;
    if (options.threads == 0) options.threads = 2;
    return Engine::Load(folder_.Path(name), options);
  }
  static std::vector<TokenId> Text() {
    std::vector<TokenId> tokens;
    for (int i = 0; i < 200; ++i) tokens.push_back(3 + i * i * 7 % 290);
    return tokens;
  }
  // Logits after each of 40 tokens that are computed `chunk` at a time.
  static std::vector<float> Logits(Engine& engine, size_t chunk) {
    const std::vector<TokenId> tokens = Text();
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0; begin < 40; begin += chunk) {
      const BatchSequence sequence{&kv, std::span(tokens).subspan(begin, chunk)};
      engine.pass().Run(ShapeOf(sequence), engine.selector());
      for (size_t i = 0; i < chunk; ++i) {
        const FloatView logits = engine.pass().Logits(static_cast<int64_t>(i), 1);
        all.insert(all.end(), logits.data, logits.data + logits.cols);
      }
    }
    return all;
  }
  // Packs "m" with thresholds to "p".
  void Pack(const std::vector<float>& thresholds, DType quant = DType::kQ8_0) const {
    PackOptions options;
    options.quant = quant;
    options.silu_thresholds = thresholds;
    PackModel(GgufFile::Open(folder_.Path("m")), options, folder_.Path("p"));
  }

  TestFolder folder_{"hearth_silu"};
};

TEST_F(SiluThresholdsTest, PerplexityMovesByNoMoreThanAsked) {
  MakeModel(folder_.Path("m"), ShapeText(96, 160, kDenseShape), DType::kF16);
  const auto engine = Load("m");
  double active = 1;
  for (const double change : {1e-9, 0.002, 0.05}) {
    const SiluCalibration made = CalibrateSilu(*engine, Text(), change);
    ASSERT_EQ(made.thresholds.size(), 2u);
    EXPECT_THAT(made.thresholds, Each(Ge(0.0f)));
    EXPECT_LE(std::abs(made.after.perplexity() / made.before.perplexity() - 1), change);
    EXPECT_LE(made.active, active) << "more may be left out where more is allowed";
    active = made.active;
  }
  EXPECT_LT(active, 0.95);
  // The engine with these thresholds has that perplexity.
  const SiluCalibration made = CalibrateSilu(*engine, Text(), 0.05);
  EngineOptions options;
  options.silu_thresholds = made.thresholds;
  options.threads = 1;
  const auto thresholded = Load("m", options);
  const std::vector<TokenId> text = Text();
  EXPECT_DOUBLE_EQ(EvaluateText(*thresholded, SampleToScore(SplitText(text).last)).perplexity,
                   made.after.perplexity());
  EXPECT_EQ(CalibrateSilu(*Load("m", {.threads = 1}), Text(), 0.05).thresholds, made.thresholds);
}

// With what it says that it takes, in the smallest memory that a refusal names.
TEST_F(SiluThresholdsTest, AStreamedModelGetsTheSame) {
  for (const char* shape : {kDenseShape, kExpertShape}) {
    MakeModel(folder_.Path("m"), ShapeText(256, 4096, shape), DType::kF16);
    EngineOptions limited = {.memory_bytes = 1, .program_bytes = uint64_t{64} << 20, .context = 64};
    const GgufFile file = GgufFile::Open(folder_.Path("m"));
    limited.reserved_bytes = SiluCalibrationBytes(file, limited);
    try {
      Load("m", limited);
      FAIL() << "nothing was refused";
    } catch (const Error& error) {
      const std::string words = error.what(), before = "the smallest that can is ";
      limited.memory_bytes = std::stoull(words.substr(words.find(before) + before.size())) << 20;
    }
    const auto streamed = Load("m", limited);
    ASSERT_TRUE(streamed->is_streamed());
    const SiluCalibration a = CalibrateSilu(*streamed, Text(), 0.05);
    const SiluCalibration b = CalibrateSilu(*Load("m"), Text(), 0.05);
    EXPECT_EQ(a.thresholds, b.thresholds);
    EXPECT_EQ(a.after.perplexity(), b.after.perplexity());
    EXPECT_EQ(a.active, b.active);
    EXPECT_LT(a.active, 0.95);
    EXPECT_GT(streamed->stream_counts().bytes_read, 0u);
  }
}

TEST_F(SiluThresholdsTest, GatedIsDenseBitForBitOnEveryIsa) {
  for (const char* shape : {kDenseShape, kExpertShape}) {
    MakeModel(folder_.Path("m"), ShapeText(96, 160, shape), DType::kF16);
    Pack({0.1f, 0.3f});
    const GgufFile packed = GgufFile::Open(folder_.Path("p"));
    EXPECT_EQ(ReadModelSpec(packed).layers[1].ffn.activation, FfnActivation::kThresholdedSilu);
    EXPECT_EQ(ReadModelSpec(packed).layers[1].ffn.threshold, 0.3f);
    for (const std::string& isa : UsableIsaNames()) {
      const auto dense = Load("p", {.isa = isa, .mode = FfnMode::kDense});
      const auto gated = Load("p", {.isa = isa, .mode = FfnMode::kGated});
      for (const size_t chunk : {1, 20}) EXPECT_EQ(Logits(*gated, chunk), Logits(*dense, chunk));
      const SparseFfnCounts counts = gated->pass().ffn_counts();
      EXPECT_LT(counts.up, counts.gate * 3 / 4);
      EXPECT_GT(counts.active, counts.gate / 100);
      EXPECT_EQ(dense->pass().ffn_counts().up, dense->pass().ffn_counts().gate);
    }
  }
}

TEST_F(SiluThresholdsTest, ThePackedFileComputesWhatTheThresholdedModelDoes) {
  MakeModel(folder_.Path("m"), ShapeText(96, 160, kDenseShape), DType::kQ8_0);
  Pack({0.1f, 0.3f});
  EngineOptions with;
  with.silu_thresholds = {0.1f, 0.3f};
  const std::vector<float> expected = Logits(*Load("m", with), 20);
  const std::vector<float> plain = Logits(*Load("m"), 20);
  const std::vector<float> packed = Logits(*Load("p"), 20);
  const auto distance = [&](const std::vector<float>& to) {
    double sum = 0;
    for (size_t i = 0; i < packed.size(); ++i) {
      sum += std::pow(static_cast<double>(packed[i]) - static_cast<double>(to[i]), 2);
    }
    return std::sqrt(sum);
  };
  EXPECT_LT(distance(expected), distance(plain) / 4) << "thresholds matter more than Q8_0 does";
}

TEST_F(SiluThresholdsTest, WhatMakesNoSenseIsRefused) {
  MakeModel(folder_.Path("m"), ShapeText(96, 160, kReluShape), DType::kQ8_0);
  const auto says = [](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(says([&] { CalibrateSilu(*Load("m"), Text(), 0.01); }), HasSubstr("silu"));
  EXPECT_THAT(says([&] { Pack({0.1f, 0.1f}); }), HasSubstr("activation"));
  MakeModel(folder_.Path("m"), ShapeText(96, 160, kDenseShape), DType::kQ8_0);
  EXPECT_THAT(says([&] { CalibrateSilu(*Load("m"), Text(), 0); }), HasSubstr("positive"));
  EXPECT_THAT(says([&] { Pack({0.1f}); }), HasSubstr("number"));
  EXPECT_THAT(says([&] { Pack({0.1f, -1.0f}); }), HasSubstr("from 0 on"));
  EXPECT_THAT(says([&] { Pack({0.1f, NAN}); }), HasSubstr("finite"));
  // A file that says so without the thresholds.
  const GgufFile model = GgufFile::Open(folder_.Path("m"));
  GgufMetadata metadata = model.metadata();
  metadata.SetString("hearth.ffn_activation", "thresholded_silu");
  std::vector<GgufTensorDecl> decls;
  for (const GgufTensor& t : model.tensors()) {
    decls.push_back({t.name, t.dtype, {t.ne.begin(), t.ne.begin() + t.num_dims}});
  }
  GgufWriter writer(folder_.Path("n"), metadata, decls);
  for (const GgufTensor& t : model.tensors()) writer.Append(ReadAll(model, t));
  writer.Finish();
  EXPECT_THAT(says([&] { Load("n"); }), HasSubstr("hearth.ffn_thresholds"));
}

}  // namespace
}  // namespace hearth
