// A model that is not packed and of which only a part is in memory: the same logits, bit for bit,
// as in memory (docs/architecture.md, invariant 3), for dense layers and for mixtures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/test_adapters.h"
#include "pass/test_passes.h"
#include "prepare/pack/test_pack_models.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/synth.h"
#include "test_budgets.h"

namespace hearth {
namespace {

using testing::HasSubstr;

struct GgufCase {
  const char* name;
  const char* shape;
  DType quant;
  bool is_mixture;
};

class StreamedGgufTest : public testing::TestWithParam<GgufCase> {
 protected:
  static std::string PathOf(const GgufCase& model) {
    return testing::TempDir() + "streamed_" + model.name + ".gguf";
  }
  void SetUp() override {
    SynthesizeModel(ParseShape(GetParam().shape, GetParam().name),
                    {.quant = GetParam().quant, .threads = 2}, Path());
  }
  void TearDown() override { std::filesystem::remove(Path()); }
  std::string Path() const { return PathOf(GetParam()); }

  // Logits of a prompt of 12 tokens, and after each of 6 that follow.
  static std::vector<float> Logits(Engine& engine) {
    std::vector<TokenId> tokens(18);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(100 + 37 * i % 400);
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t count = begin == 0 ? 12 : 1;
      const BatchSequence sequence{&kv, std::span(tokens).subspan(begin, count)};
      engine.pass().Run(ShapeOf(sequence), engine.selector());
      const FloatView logits = engine.pass().Logits(static_cast<int64_t>(count) - 1, 1);
      all.insert(all.end(), logits.data, logits.data + logits.cols);
      begin += count;
    }
    return all;
  }
};

TEST_P(StreamedGgufTest, EveryBudgetAndBackendGivesTheLogitsOfMemory) {
  EngineOptions options{.program_bytes = kTestProgramBytes, .threads = 2, .context = 64};
  const std::vector<float> expected = Logits(*Engine::Load(Path(), options));
  int trial = 0;
  for (const uint64_t more_mib : {0, 1, 4}) {
    for (const CachePolicyKind policy : {CachePolicyKind::kLru, kDefaultCachePolicy}) {
      options.threads = 1 + trial % 4;
      options.memory_bytes = SmallestLimit(Path(), options) + (more_mib << 20);
      options.streaming.pipeline.policy = policy;
      options.streaming.io.backend = trial % 2 == 0 ? IoBackend::kAuto : IoBackend::kPread;
      ++trial;
      const auto engine = Engine::Load(Path(), options);
      ASSERT_NE(engine->streamed_matrices(), nullptr);
      EXPECT_EQ(engine->streamed_matrices()->is_mixture(), GetParam().is_mixture);
      EXPECT_EQ(Logits(*engine), expected) << more_mib;
      EXPECT_GT(engine->stream_counts().misses, 0);
      EXPECT_GT(engine->stream_counts().bytes_read, 0u);
      uint64_t promised = 0;
      for (const auto& [name, bytes] : engine->planned_ledger()) promised += bytes;
      EXPECT_LE(promised, *options.memory_bytes);
      EXPECT_EQ(engine->budget().used_bytes(), promised);
    }
  }
}

// Adapters of attention, and of FFNs that are no mixtures.
TEST_P(StreamedGgufTest, AdaptersAddTheSame) {
  const std::string adapter = Path() + ".lora";
  {
    const GgufFile base = GgufFile::Open(Path());
    std::vector<TestPair> pairs;
    for (const GgufTensor& tensor : AdaptableTensors(base)) {
      pairs.push_back(MakeTestPair(tensor, 4, static_cast<uint32_t>(pairs.size())));
    }
    WriteTestAdapter(adapter, AdapterMetadata(base.metadata().GetString("general.architecture"), 8),
                     pairs);
  }
  EngineOptions options{.program_bytes = kTestProgramBytes, .threads = 2, .context = 64};
  const std::vector<float> base = Logits(*Engine::Load(Path(), options));
  options.adapters = {{adapter, 1}};
  const std::vector<float> expected = Logits(*Engine::Load(Path(), options));
  EXPECT_NE(expected, base);
  options.memory_bytes = SmallestLimit(Path(), options) + (uint64_t{1} << 20);
  const auto engine = Engine::Load(Path(), options);
  ASSERT_NE(engine->streamed_matrices(), nullptr);
  EXPECT_EQ(Logits(*engine), expected);
  std::filesystem::remove(adapter);
}

TEST_P(StreamedGgufTest, AFileThatChangesFailsTheNextTokenOnly) {
  EngineOptions options{.program_bytes = kTestProgramBytes, .threads = 2, .context = 64};
  options.memory_bytes = SmallestLimit(Path(), options);
  const auto engine = Engine::Load(Path(), options);
  KvSequence kv(engine->kv_pool());
  const TokenId token = 100;
  const auto pass = [&] {
    const BatchSequence sequence{&kv, {&token, 1}};
    engine->pass().Run({PassKind::kDecode, {&sequence, 1}}, engine->selector());
  };
  pass();
  std::filesystem::resize_file(Path(), std::filesystem::file_size(Path()) / 2);
  try {
    pass();
    FAIL() << "a truncated file went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr(Path()));
  }
  EXPECT_EQ(kv.length(), 1) << "the token of the pass that failed is not in the cache";
}

TEST_P(StreamedGgufTest, WhatMayNotStreamIsRefused) {
  EngineOptions options{.program_bytes = kTestProgramBytes, .threads = 2, .context = 64};
  options.memory_bytes = SmallestLimit(Path(), options);
  options.may_stream = false;
  EXPECT_THROW(Engine::Load(Path(), options), Error);
}

INSTANTIATE_TEST_SUITE_P(
    Models, StreamedGgufTest,
    testing::Values(GgufCase{"dense",
                             R"({"hidden_size": 256, "intermediate_size": 3072, "num_layers": 6,
                     "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600})",
                             DType::kQ8_0, false},
                    GgufCase{"large",  // matrices of several extents
                             R"({"hidden_size": 512, "intermediate_size": 9216, "num_layers": 2,
                     "num_heads": 4, "num_kv_heads": 2, "head_dim": 128, "vocab_size": 600})",
                             DType::kF16, false},
                    GgufCase{"mixture",
                             R"({"arch": "qwen3moe", "hidden_size": 256, "intermediate_size": 256,
                     "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64,
                     "vocab_size": 600, "num_experts": 32, "num_experts_per_token": 4})",
                             DType::kQ4_0, true},
                    GgufCase{"early",  // experts are read while attention is computed
                             R"({"arch": "smallthinker", "hidden_size": 256,
                     "intermediate_size": 256, "num_layers": 5, "num_heads": 4, "num_kv_heads": 2,
                     "head_dim": 64, "vocab_size": 600, "num_experts": 32,
                     "num_experts_per_token": 4, "sliding_window": 8})",
                             DType::kQ4_0, true}),
    [](const auto& model) { return std::string(model.param.name); });

// Its token embedding stays in the file where memory is short.
class EmbeddingRowsTest : public testing::Test {
 protected:
  static std::string Path() { return testing::TempDir() + "embedding_rows.gguf"; }
  static void TearDownTestSuite() { std::filesystem::remove(Path()); }

  // 12 MiB of embeddings in Q8_0, and as much of an output matrix.
  static void Make(const std::string& more) {
    MakeModel(Path(),
              R"({"arch": "llama", "hidden_size": 512, "intermediate_size": 2048, "num_layers": 3,
                  "num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 24000)" +
                  more + "}",
              DType::kQ8_0);
  }

  static std::vector<float> Logits(Engine& engine) {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < 30; ++i) tokens.push_back(i * 7919 % 24000);
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0, count = 20; begin < tokens.size(); begin += count, count = 1) {
      const BatchSequence sequence{&kv, std::span(tokens).subspan(begin, count)};
      engine.pass().Run(ShapeOf(sequence), engine.selector());
      const FloatView logits = engine.pass().Logits(static_cast<int64_t>(count) - 1, 1);
      all.insert(all.end(), logits.data, logits.data + logits.cols);
    }
    return all;
  }
};

TEST_F(EmbeddingRowsTest, GiveTheLogitsOfMemory) {
  Make("");
  EngineOptions options{.program_bytes = kTestProgramBytes, .threads = 2, .context = 64};
  const auto resident = Engine::Load(Path(), options);
  ASSERT_EQ(resident->embedding(), nullptr);
  uint64_t all = 0;
  for (const auto& [name, bytes] : resident->planned_ledger()) all += bytes;
  // So that the rest fits; and so that FFNs are streamed as well.
  for (const uint64_t limit : {all - (uint64_t{4} << 20), SmallestLimit(Path(), options)}) {
    options.memory_bytes = limit;
    const auto engine = Engine::Load(Path(), options);
    ASSERT_NE(engine->embedding(), nullptr);
    EXPECT_EQ(engine->is_streamed(), limit < all - (uint64_t{4} << 20));
    EXPECT_EQ(Logits(*engine), Logits(*resident));
    EXPECT_EQ(engine->embedding()->counts().read, 30);
    EXPECT_LE(engine->budget().used_bytes(), limit);
    EXPECT_LT(engine->planned_ledger().at("embedding rows"), uint64_t{2} << 20);
    EXPECT_EQ(engine->budget().Ledger().at("embedding rows"),
              engine->planned_ledger().at("embedding rows"));
  }
}

TEST_F(EmbeddingRowsTest, StayInMemoryWhereTheyAreTheOutputToo) {
  Make(R"(, "tied_embeddings": true)");
  EngineOptions options{.program_bytes = kTestProgramBytes, .threads = 2, .context = 64};
  options.memory_bytes = SmallestLimit(Path(), options);
  const auto engine = Engine::Load(Path(), options);
  EXPECT_TRUE(engine->is_streamed());
  EXPECT_EQ(engine->embedding(), nullptr);
}

}  // namespace
}  // namespace hearth
