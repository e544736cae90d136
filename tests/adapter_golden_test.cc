// Adapters as PEFT saves them, held against the logits that PEFT computes
// (tools/goldens/make_adapter_goldens.py).
#include <gtest/gtest.h>

#include <cstring>

#include "base/test_data.h"
#include "engine/engine.h"
#include "golden_case.h"

namespace hearth {
namespace {

std::string AdapterPath(const std::string& name) {
  return SourcePath("tests/goldens/adapters/") + name;
}

// Logits at the golden's positions: the prompt in one pass, then token by token.
std::vector<float> RunWith(const GoldenCase& golden, const std::vector<std::string>& adapters) {
  EngineOptions options;
  options.kv_codec = KvCodec::kF32;
  options.threads = 2;
  for (const std::string& name : adapters) options.adapters.push_back({AdapterPath(name), 1});
  const auto engine = Engine::Load(golden.model_path, options);
  std::vector<TokenId> tokens = golden.prompt;
  tokens.insert(tokens.end(), golden.decode.begin(), golden.decode.end());
  KvSequence kv(engine->kv_pool());
  std::vector<float> logits;
  const auto step = [&](std::span<const TokenId> some) {
    const int64_t first = kv.length();
    const BatchSequence sequence{&kv, some};
    engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine->selector());
    for (const int64_t position : golden.positions) {
      if (position < first || position >= kv.length()) continue;
      const FloatView row = engine->pass().Logits(position - first, 1);
      logits.insert(logits.end(), row.row(0), row.row(0) + golden.vocab);
    }
  };
  const std::span<const TokenId> all(tokens);
  step(all.first(golden.prompt.size()));
  for (size_t i = golden.prompt.size(); i < all.size(); ++i) step(all.subspan(i, 1));
  return logits;
}

void ExpectPeftsLogits(const std::string& model, const std::string& name,
                       const std::vector<std::string>& adapters) {
  const GoldenCase golden = LoadGolden(model);
  const std::string bytes = ReadWholeFile(AdapterPath(name) + "/logits.f32");
  std::vector<float> expected(bytes.size() / sizeof(float));
  ASSERT_EQ(expected.size(), golden.logits.size()) << name;
  std::memcpy(expected.data(), bytes.data(), bytes.size());
  EXPECT_LE(RelativeError(RunWith(golden, adapters), expected), 1e-5) << name;
  EXPECT_GE(RelativeError(golden.logits, expected), 1e-2) << name << " changes nothing";
}

TEST(AdapterGoldenTest, RowsOfQueriesAndKeysLieAsInTheBase) {
  ExpectPeftsLogits("llama", "llama-a", {"llama-a"});
}

TEST(AdapterGoldenTest, LayersWithoutATermStayAsTheyAre) {
  ExpectPeftsLogits("llama", "llama-b", {"llama-b"});
}

TEST(AdapterGoldenTest, SeveralTogether) {
  ExpectPeftsLogits("llama", "llama-ab", {"llama-a", "llama-b"});
}

TEST(AdapterGoldenTest, NormsOfHeadsAndAfterBlocks) {
  ExpectPeftsLogits("gemma3", "gemma3-a", {"gemma3-a"});
}

TEST(AdapterGoldenTest, FusedMatrices) { ExpectPeftsLogits("phi3", "phi3-a", {"phi3-a"}); }

TEST(AdapterGoldenTest, TransposedMatrices) { ExpectPeftsLogits("gpt2", "gpt2-a", {"gpt2-a"}); }

TEST(AdapterGoldenTest, TheFfnBesideExperts) {
  ExpectPeftsLogits("qwen2moe", "qwen2moe-a", {"qwen2moe-a"});
}

}  // namespace
}  // namespace hearth
