// Embeddings as a model's file says that they are made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/session/batch_scheduler.h"
#include "engine/session/prompt.h"
#include "format/gguf_writer.h"

namespace hearth {
namespace {

// A golden model whose file says how embeddings are pooled.
std::unique_ptr<Engine> LoadPooled(int32_t pooling, bool adds_eos = false) {
  const GgufFile golden = GgufFile::Open(SourcePath("tests/goldens/llama.gguf"));
  const std::string path = ::testing::TempDir() + "hearth_pooled.gguf";
  GgufMetadata metadata = golden.metadata();
  metadata.SetInt32("llama.pooling_type", pooling);
  metadata.SetBool("tokenizer.ggml.add_eos_token", adds_eos);
  std::vector<GgufTensorDecl> decls;
  for (const GgufTensor& tensor : golden.tensors()) {
    decls.push_back({tensor.name, tensor.dtype, {tensor.ne.begin(), tensor.ne.begin() + 2}});
  }
  GgufWriter writer(path, metadata, decls);
  for (const GgufTensor& tensor : golden.tensors()) {
    std::vector<std::byte> bytes(tensor.bytes);
    golden.ReadTensor(tensor, 0, bytes);
    writer.Append(bytes);
  }
  writer.Finish();
  EngineOptions options;
  options.threads = 2;
  options.kv_sequences = 2;
  auto engine = Engine::Load(path, options);
  std::filesystem::remove(path);
  return engine;
}

BatchRequest EmbeddingOf(std::vector<TokenId> text, std::vector<float>* out) {
  BatchRequest request;
  request.prompt = std::move(text);
  request.wants_embedding = true;
  request.on_done = [out](const BatchOutcome& outcome) { *out = outcome.embedding; };
  return request;
}

TEST(PoolingTest, AnEmbeddingIsOneTokensWhereTheFileSaysSo) {
  std::vector<TokenId> text;
  for (TokenId i = 0; i < 100; ++i) text.push_back(3 + i * 37 % 250);
  for (const int32_t pooling : {2, 3}) {
    const auto engine = LoadPooled(pooling);
    KvSequence kv(engine->kv_pool());
    const BatchSequence sequence{&kv, text};
    engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine->prefill_selector());
    const FloatView states = engine->pass().FinalStates();
    const float* const row = states.row(pooling == 2 ? 0 : states.rows - 1);
    const std::vector<float> expected(row, row + states.cols);
    kv.Truncate(0);
    std::vector<float> embedding;
    BatchScheduler scheduler(*engine, {});
    BatchRequest company;
    company.prompt = {5, 6, 7};
    company.generate.max_tokens = 30;
    company.generate.sampling.logit_bias = {{1, -1e9f}, {2, -1e9f}};  // never ends early
    scheduler.Add(std::move(company));                                // chunks of 64 beside it
    scheduler.Step();
    scheduler.Add(EmbeddingOf(text, &embedding));
    for (int step = 0; step < 1000 && !scheduler.is_idle(); ++step) scheduler.Step();
    ASSERT_EQ(embedding.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(embedding[i], expected[i], 1e-5f) << pooling;
    }
  }
}

TEST(PoolingTest, AModelWithoutPoolingMakesNoEmbeddings) {
  const auto engine = LoadPooled(0);
  const BatchScheduler scheduler(*engine, {});
  std::vector<float> embedding;
  BatchRequest request = EmbeddingOf({5, 6}, &embedding);
  EXPECT_THAT([&] { scheduler.Check(request); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("pooling_type 0")));
}

TEST(PoolingTest, EmbeddedTextsEndWithEosWhereTheFileSaysSo) {
  const auto plain = LoadPooled(3);
  const auto ending = LoadPooled(3, true);
  const std::vector<TokenId> prompt = EncodePrompt(ending->model(), "some text", 64);
  EXPECT_EQ(EncodeForEmbedding(plain->model(), "some text", 64), prompt);
  std::vector<TokenId> longer = prompt;
  longer.push_back(ending->model().tokenizer().special().eos);
  EXPECT_EQ(EncodeForEmbedding(ending->model(), "some text", 64), longer);
}

}  // namespace
}  // namespace hearth
