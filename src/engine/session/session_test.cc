#include "engine/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>

#include "base/error.h"
#include "base/test_data.h"
#include "format/gguf_writer.h"

namespace hearth {
namespace {

std::unique_ptr<Engine> LoadGolden(const std::string& name, EngineOptions options = {}) {
  return Engine::Load(SourcePath("tests/goldens/") + name + ".gguf", options);
}

GenerateOptions Greedy(int64_t tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  options.sampling.temperature = 0;
  options.sampling.logit_bias = {{1, -1e9f}, {2, -1e9f}};  // never end early
  return options;
}

const std::vector<TokenId> kPrompt = {1, 25, 71, 269, 100, 108};

TEST(SessionTest, SameSeedSameTextOtherSeedOtherText) {
  const auto engine = LoadGolden("llama");
  GenerateOptions options;
  options.max_tokens = 20;
  options.sampling.seed = 5;
  const auto a = Session(*engine).Generate(kPrompt, options);
  const auto b = Session(*engine).Generate(kPrompt, options);
  options.sampling.seed = 6;
  const auto c = Session(*engine).Generate(kPrompt, options);
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_NE(a.token_ids, c.token_ids);
}

TEST(SessionTest, ContinuingEqualsGeneratingAtOnce) {
  const auto engine = LoadGolden("llama");
  Session whole(*engine), parts(*engine);
  const auto expected = whole.Generate(kPrompt, Greedy(20)).token_ids;
  ASSERT_EQ(expected.size(), 20u);
  auto tokens = parts.Generate(kPrompt, Greedy(7)).token_ids;
  const auto rest = parts.Generate({}, Greedy(13)).token_ids;
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokens, expected);
}

TEST(SessionTest, TruncatingAndRepeatingGivesTheSame) {
  const auto engine = LoadGolden("qwen3");
  Session session(*engine);
  const auto first = session.Generate(kPrompt, Greedy(10));
  session.Truncate(3);
  EXPECT_EQ(session.history().size(), 3u);
  const auto again = session.Generate(std::span(kPrompt).subspan(3), Greedy(10));
  EXPECT_EQ(again.token_ids, first.token_ids);
  EXPECT_EQ(again.prefill.tokens, 3) << "what was kept is not computed again";
}

TEST(SessionTest, ContinuesFromItsOwnTokensWhateverOthersDid) {
  const auto engine = LoadGolden("llama");
  Session session(*engine), other(*engine);
  session.Generate(kPrompt, Greedy(1));
  session.Truncate(static_cast<int64_t>(kPrompt.size()));
  const auto expected = session.Generate({}, Greedy(5)).token_ids;
  session.Truncate(static_cast<int64_t>(kPrompt.size()));
  other.Generate(std::vector<TokenId>{1, 200, 33}, Greedy(3));
  EXPECT_EQ(session.Generate({}, Greedy(5)).token_ids, expected);
}

TEST(SessionTest, RefusesAPromptThatDoesNotFitAndStaysUsable) {
  EngineOptions options;
  options.context = 16;
  const auto engine = LoadGolden("llama", options);
  Session session(*engine);
  const std::vector<TokenId> too_long(17, 5);
  try {
    session.Generate(too_long, Greedy(1));
    FAIL() << "17 tokens do not fit into 16";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kContextFull);
  }
  const auto result = session.Generate(kPrompt, Greedy(100));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength) << "the context ends first";
  EXPECT_EQ(result.token_ids.size(), 16 - kPrompt.size() + 1);
  EXPECT_THROW(Session(*engine).Generate({}, Greedy(1)), Error) << "nothing to start from";
  Session poisoned(*engine);
  EXPECT_THROW(poisoned.Generate(std::vector<TokenId>{1, 9999}, Greedy(1)), Error);
  EXPECT_TRUE(poisoned.history().empty()) << "a refused prompt leaves nothing behind";
}

TEST(SessionTest, CancelStopsBetweenTokensAndInThePrompt) {
  const auto engine = LoadGolden("llama");
  Session session(*engine);
  std::atomic<bool> cancel{false};
  GenerateOptions options = Greedy(50);
  options.cancel = &cancel;
  int pieces = 0;
  const auto result = session.Generate(kPrompt, options, [&](std::string_view) {
    cancel = ++pieces == 3;
    return true;
  });
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_LT(result.token_ids.size(), 50u);
  const auto none = session.Generate(kPrompt, options);
  EXPECT_EQ(none.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(none.token_ids.empty());
  EXPECT_EQ(Session(*engine)
                .Generate(kPrompt, Greedy(9), [](std::string_view) { return false; })
                .finish_reason,
            FinishReason::kCancelled);
}

TEST(EngineTest, TheLedgerHoldsWhatWasPromised) {
  const auto engine = LoadGolden("mixtral");
  uint64_t promised = 0;
  for (const auto& [name, bytes] : engine->planned_ledger()) promised += bytes;
  uint64_t charged = 0;
  for (const auto& [name, bytes] : engine->budget().Ledger()) charged += bytes;
  EXPECT_EQ(charged, promised);
  EXPECT_EQ(engine->budget().used_bytes(), promised);
}

TEST(EngineTest, ABudgetIsAcceptedOrRefusedBeforeLoading) {
  const auto engine = LoadGolden("llama");
  // The program's own size grows between loads, under sanitizers by a lot; the rest does not.
  const uint64_t slack = uint64_t{256} << 20;
  EngineOptions options;
  options.memory_bytes = engine->budget().used_bytes() + slack;
  EXPECT_NO_THROW(LoadGolden("llama", options));
  options.memory_bytes = uint64_t{1} << 20;
  try {
    LoadGolden("llama", options);
    FAIL() << "no program fits into 1 MiB";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the smallest that can is"));
  }
}

// However many requests are to be computed together: their share of the limit is no need.
TEST(EngineTest, TheSmallestBudgetThatIsNamedWillDo) {
  const std::string path = SourcePath("models/hearth-stories-5m.gguf");
  const GgufFile file = GgufFile::Open(path);
  EngineOptions options;
  options.program_bytes = uint64_t{32} << 20;
  for (const bool may_stream : {true, false}) {
    for (const int64_t sequences : {1, 8, 64}) {
      options.may_stream = may_stream;
      options.kv_sequences = sequences;
      options.memory_bytes = 1;
      std::string refusal;
      try {
        CheckBudget(PlanEngine(file, options), path);
      } catch (const Error& error) {
        refusal = error.what();
      }
      const std::string before = "the smallest that can is ";
      ASSERT_THAT(refusal, ::testing::HasSubstr(before));
      const uint64_t mib = std::stoull(refusal.substr(refusal.find(before) + before.size()));
      options.memory_bytes = mib << 20;
      const EnginePlan plan = PlanEngine(file, options);
      EXPECT_NO_THROW(CheckBudget(plan, path)) << sequences;
      EXPECT_EQ(plan.is_streamed(), may_stream);
      EXPECT_GE(plan.kv.tokens, plan.limits.max_context);
    }
  }
}

// A copy of a golden with one more tensor: eight zeros.
std::string AlteredGolden(const std::string& name, const char* new_tensor) {
  const GgufFile file = GgufFile::Open(SourcePath("tests/goldens/") + name + ".gguf");
  std::vector<GgufTensorDecl> decls;
  for (const GgufTensor& t : file.tensors()) {
    decls.push_back({t.name, t.dtype, {t.ne.begin(), t.ne.begin() + t.num_dims}});
  }
  decls.push_back({new_tensor, DType::kF32, {8}});
  const std::string path = ::testing::TempDir() + "hearth_altered.gguf";
  GgufWriter writer(path, file.metadata(), decls);
  for (const GgufTensor& t : file.tensors()) {
    std::vector<std::byte> bytes(t.bytes);
    file.ReadTensor(t, 0, bytes);
    writer.Append(bytes);
  }
  writer.Append(std::vector<std::byte>(32));
  writer.Finish();
  return path;
}

TEST(EngineTest, RefusesTensorsItWouldHaveToIgnore) {
  const std::string path = AlteredGolden("llama", "blk.0.attn_norm.bias");
  try {
    Engine::Load(path, {});
    FAIL() << "the bias would have been left out silently";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'blk.0.attn_norm.bias'"));
  }
  EXPECT_NO_THROW(Engine::Load(AlteredGolden("llama", "blk.0.attn_rot_embd.weight"), {}));
  std::remove(path.c_str());
}

TEST(EngineTest, RefusesRopeFactorsThatAreNotPositive) {
  const std::string path = AlteredGolden("llama", "rope_freqs.weight");  // eight zeros
  EXPECT_THROW(Engine::Load(path, {}), Error);
  std::remove(path.c_str());
}

TEST(EngineTest, RefusesOptionsOutsideTheModel) {
  EngineOptions options;
  options.context = 129;  // the goldens were made for 128
  EXPECT_THROW(LoadGolden("llama", options), Error);
  options = {};
  options.isa = "z80";
  EXPECT_THROW(LoadGolden("llama", options), Error);
  options = {};
  options.threads = -1;
  EXPECT_THROW(LoadGolden("llama", options), Error);
}

}  // namespace
}  // namespace hearth
