// Low-rank adapters in a running model: the same as merged, each sequence its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/engine.h"
#include "engine/session/batch_scheduler.h"
#include "engine/session/session.h"
#include "engine/test_adapters.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<TokenId> kTokens = {1, 25, 71, 269, 100, 108, 52, 203, 87, 166, 277, 97};

std::string GoldenPath(const std::string& name) {
  return SourcePath("tests/goldens/") + name + ".gguf";
}

using Matrix = std::vector<float>;

// max|a - b| / max|b|.
double Difference(const Matrix& a, const Matrix& b) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return most / largest;
}

// Logits of all rows of the last pass.
Matrix LogitsOf(Engine& engine, int64_t first, int64_t rows) {
  Matrix all;
  for (int64_t row = first; row < first + rows; ++row) {
    const FloatView logits = engine.pass().Logits(row, 1);
    all.insert(all.end(), logits.row(0), logits.row(0) + logits.cols);
  }
  return all;
}

Matrix Logits(Engine& engine, const AdapterMix& mix, std::span<const TokenId> tokens = kTokens) {
  KvSequence kv(engine.kv_pool());
  const BatchSequence sequence{&kv, tokens, &mix};
  engine.pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine.prefill_selector());
  return LogitsOf(engine, 0, std::ssize(tokens));
}

class AdaptersTest : public ::testing::Test {
 protected:
  AdaptersTest() { fs::create_directories(folder_); }
  ~AdaptersTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  static std::unique_ptr<Engine> Load(const std::string& path,
                                      std::vector<AdapterOption> adapters = {}) {
    EngineOptions options;
    options.kv_codec = KvCodec::kF32;
    options.threads = 2;
    options.adapters = std::move(adapters);
    options.kv_sequences = 12;
    return Engine::Load(path, options);
  }

  // An adapter of all matrices of a golden that `is_wanted` names.
  std::vector<TestPair> Write(
      const std::string& golden, const std::string& name, uint32_t seed,
      const std::function<bool(const std::string&)>& is_wanted = [](auto&) { return true; }) {
    const GgufFile file = GgufFile::Open(GoldenPath(golden));
    std::vector<TestPair> pairs;
    for (const GgufTensor& tensor : AdaptableTensors(file)) {
      if (!is_wanted(tensor.name)) continue;
      pairs.push_back(MakeTestPair(tensor, 1 + (seed + pairs.size()) % 5,
                                   seed * 100 + static_cast<uint32_t>(pairs.size())));
    }
    WriteTestAdapter(Path(name), AdapterMetadata(Architecture(file), kAlpha), pairs);
    return pairs;
  }
  static std::string Architecture(const GgufFile& file) {
    return file.metadata().GetString("general.architecture");
  }

  static constexpr float kAlpha = 4;
  const std::string folder_ = ::testing::TempDir() + "adapters." + std::to_string(getpid());
};

// Online and merged agree where every matrix has a rank of its own; `weight` scales both.
void ExpectEqualToMerged(const std::string& golden, const std::string& adapter,
                         const std::string& merged, double* change) {
  EngineOptions options;
  options.kv_codec = KvCodec::kF32;
  options.threads = 2;
  const auto whole = Engine::Load(merged, options);
  options.adapters = {{adapter, 0.75f}};
  const auto online = Engine::Load(GoldenPath(golden), options);
  const Matrix expected = Logits(*whole, {});
  const Matrix found = Logits(*online, online->adapters().default_mix());
  EXPECT_LE(Difference(found, expected), 1e-5) << golden;
  *change = Difference(Logits(*online, {}), expected);
}

class AdapterFamilyTest : public AdaptersTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(AdapterFamilyTest, OnlineEqualsMergedForEveryMatrix) {
  const GgufFile base = GgufFile::Open(GoldenPath(GetParam()));
  std::set<std::string> kinds;
  for (const GgufTensor& tensor : AdaptableTensors(base)) {
    const std::string kind = tensor.name.substr(tensor.name.find('.', 4));
    if (!kinds.insert(kind).second) continue;
    // All ranks are equal here, so that one scale holds for all.
    std::vector<TestPair> pairs;
    for (const GgufTensor& each : AdaptableTensors(base)) {
      if (each.name.ends_with(kind)) {
        pairs.push_back(MakeTestPair(each, 3, static_cast<uint32_t>(pairs.size()) + 7));
      }
    }
    WriteTestAdapter(Path("a.gguf"), AdapterMetadata(Architecture(base), kAlpha), pairs);
    WriteMerged(base, Path("merged.gguf"), pairs, 0.75 * double{kAlpha} / 3);
    double change = 0;
    ExpectEqualToMerged(GetParam(), Path("a.gguf"), Path("merged.gguf"), &change);
    EXPECT_GT(change, 1e-4) << kind << " of " << GetParam() << " changes nothing";
  }
  EXPECT_GE(kinds.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdapterFamilyTest,
                         ::testing::Values("llama", "llama-bias", "mistral-window", "qwen2",
                                           "qwen3", "gemma2", "gemma3", "phi3", "glm4", "gpt2",
                                           "opt", "falcon", "olmo2", "granite", "smollm3",
                                           "qwen2moe", "glm4moe", "mixtral", "gpt-oss"),
                         [](const auto& golden) {
                           std::string name = golden.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(AdaptersTest, ASequenceHasTheBitsItHasAlone) {
  Write("llama", "a.gguf", 1);
  Write("llama", "b.gguf", 2,
        [](const std::string& name) { return name.find("attn") != name.npos; });
  const auto engine = Load(GoldenPath("llama"), {{Path("a.gguf"), 0}, {Path("b.gguf"), 0}});
  const AdapterSet& adapters = engine->adapters();
  const AdapterScale both[] = {{1, 0.5f}, {0, 2.0f}}, first[] = {{0, 1.0f}},
                     second[] = {{1, -1.0f}};
  const AdapterMix mixes[] = {adapters.Mix(both), {}, adapters.Mix(first), adapters.Mix(second)};
  std::vector<Matrix> alone;
  for (const AdapterMix& mix : mixes) alone.push_back(Logits(*engine, mix));
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(alone[i], alone[j]);
  }
  std::vector<KvSequence> kv;
  for (int i = 0; i < 4; ++i) kv.emplace_back(engine->kv_pool());
  std::vector<BatchSequence> batch;
  for (size_t i = 0; i < 4; ++i) batch.push_back({&kv[i], std::span(kTokens), &mixes[i]});
  engine->pass().Run({PassKind::kPrefill, batch}, engine->prefill_selector());
  const int64_t rows = std::ssize(kTokens);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(LogitsOf(*engine, static_cast<int64_t>(i) * rows, rows), alone[i]) << i;
  }
  // And so does decoding, in company and alone.
  const TokenId next = 42;
  std::vector<Matrix> decoded;
  for (size_t i = 0; i < 4; ++i) batch[i].tokens = {&next, 1};
  engine->pass().Run({PassKind::kDecode, batch}, engine->selector());
  for (size_t i = 0; i < 4; ++i) decoded.push_back(LogitsOf(*engine, static_cast<int64_t>(i), 1));
  for (size_t i = 0; i < 4; ++i) {
    kv[i].Truncate(rows);
    engine->pass().Run({PassKind::kDecode, {&batch[i], 1}}, engine->selector());
    EXPECT_EQ(LogitsOf(*engine, 0, 1), decoded[i]) << i;
  }
}

TEST_F(AdaptersTest, WeightZeroHasTheBitsOfTheBase) {
  Write("qwen2", "a.gguf", 3);
  const auto base = Load(GoldenPath("qwen2"));
  const auto engine = Load(GoldenPath("qwen2"), {{Path("a.gguf"), 0}});
  EXPECT_TRUE(engine->adapters().default_mix().empty());
  EXPECT_EQ(engine->adapters().default_mix().key(), 0u);
  const Matrix expected = Logits(*base, {});
  EXPECT_EQ(Logits(*engine, engine->adapters().default_mix()), expected);
  EXPECT_EQ(Logits(*engine, {}), expected);
  const AdapterScale zero[] = {{0, 0.0f}};
  EXPECT_EQ(Logits(*engine, engine->adapters().Mix(zero)), expected);
}

TEST_F(AdaptersTest, TwoAdaptersAddUp) {
  const std::vector<TestPair> a = Write("llama", "a.gguf", 4);
  const auto twice = Load(GoldenPath("llama"), {{Path("a.gguf"), 0.25f}, {Path("a.gguf"), 0.5f}});
  const auto once = Load(GoldenPath("llama"), {{Path("a.gguf"), 0.75f}});
  EXPECT_LE(Difference(Logits(*twice, twice->adapters().default_mix()),
                       Logits(*once, once->adapters().default_mix())),
            1e-5);
  EXPECT_NE(twice->adapters().default_mix().key(), once->adapters().default_mix().key());
}

TEST_F(AdaptersTest, TheLedgerHasWhatTheBytesSay) {
  const std::vector<TestPair> pairs = Write("llama", "a.gguf", 5);
  uint64_t floats = 0;
  for (const TestPair& pair : pairs) floats += pair.a.size() + pair.b.size();
  const std::vector<AdapterOption> ten(10, {Path("a.gguf"), 0});
  const auto engine = Load(GoldenPath("llama"), ten);
  const auto ledger = engine->budget().Ledger();
  const uint64_t each = ledger.at("adapters") / 10;
  EXPECT_EQ(ledger.at("adapters"), engine->planned_ledger().at("adapters"));
  EXPECT_GE(each, floats * sizeof(float));
  EXPECT_LE(each, floats * sizeof(float) + pairs.size() * 2 * 64 + 2 * 4096 + 64);
  uint64_t promised = 0;
  for (const auto& [name, bytes] : engine->planned_ledger()) promised += bytes;
  EXPECT_EQ(engine->budget().used_bytes(), promised) << "with the scratch of their terms";
  // Where they do not fit, that is said before anything is loaded.
  EngineOptions options;
  options.memory_bytes =
      engine->budget().used_bytes() - ledger.at("adapters") - ledger.at("program");
  options.program_bytes = 0;
  options.adapters = std::vector<AdapterOption>(1000, {Path("a.gguf"), 0});
  EXPECT_THAT([&] { Engine::Load(GoldenPath("llama"), options); },
              ThrowsMessage<Error>(AllOf(HasSubstr("does not fit into"), HasSubstr("adapters"))));
}

// A session's answers, and what the scheduler says of requests with the same prompt.
TEST_F(AdaptersTest, PrefixesAreOfTheirAdapters) {
  Write("llama", "a.gguf", 6);
  const auto engine = Load(GoldenPath("llama"), {{Path("a.gguf"), 0}});
  const AdapterScale full[] = {{0, 1.0f}}, half[] = {{0, 0.5f}};
  const AdapterMix mixes[] = {{}, engine->adapters().Mix(full), engine->adapters().Mix(half)};
  std::vector<TokenId> prompt(100);
  std::iota(prompt.begin(), prompt.end(), 20);
  GenerateOptions options;
  options.max_tokens = 12;
  options.sampling.temperature = 0;
  options.sampling.logit_bias = {{1, -1e9f}, {2, -1e9f}};
  std::vector<std::vector<TokenId>> expected;
  for (const AdapterMix& mix : mixes) {
    Session session(*engine);
    session.SetAdapters(mix);
    expected.push_back(session.Generate(prompt, options).token_ids);
  }
  EXPECT_NE(expected[0], expected[1]);
  BatchScheduler scheduler(*engine, {});
  std::vector<BatchOutcome> outcomes;
  const auto ask = [&](size_t mix) {
    BatchRequest request;
    request.prompt = prompt;
    request.generate = options;
    request.adapters = mixes[mix];
    request.on_done = [&](const BatchOutcome& outcome) { outcomes.push_back(outcome); };
    scheduler.Add(std::move(request));
  };
  const auto run = [&] {
    while (!scheduler.is_idle()) scheduler.Step();
  };
  for (const size_t mix : {0u, 1u, 2u, 0u, 1u, 2u}) {  // one after the other: no wrong hit
    ask(mix);
    run();
    EXPECT_EQ(outcomes.back().generated, expected[mix]) << mix;
    EXPECT_EQ(outcomes.back().reused_tokens, outcomes.size() <= 3 ? 0 : 99);
  }
  outcomes.clear();
  for (const size_t mix : {2u, 0u, 1u, 2u}) ask(mix);  // together
  run();
  ASSERT_EQ(outcomes.size(), 4u);
  for (const BatchOutcome& outcome : outcomes) EXPECT_EQ(outcome.reused_tokens, 99);
}

TEST_F(AdaptersTest, ASessionThatTurnsToOthersForgetsItsKeys) {
  Write("llama", "a.gguf", 7);
  const auto engine = Load(GoldenPath("llama"), {{Path("a.gguf"), 1}});
  GenerateOptions options;
  options.max_tokens = 6;
  options.sampling.temperature = 0;
  Session turned(*engine), fresh(*engine);
  turned.Generate(kTokens, options);
  std::vector<TokenId> history = turned.history();
  turned.SetAdapters({});
  fresh.SetAdapters({});
  EXPECT_EQ(turned.Generate({}, options).token_ids, fresh.Generate(history, options).token_ids);
}

TEST_F(AdaptersTest, MixesAreChecked) {
  Write("llama", "a.gguf", 8);
  const auto engine = Load(GoldenPath("llama"), {{Path("a.gguf"), 1}});
  const auto mix = [&](std::vector<AdapterScale> scales) { engine->adapters().Mix(scales); };
  EXPECT_THAT([&] { mix({{1, 1}}); }, ThrowsMessage<Error>(HasSubstr("expected 0 to 0, found 1")));
  EXPECT_THAT([&] { mix({{-1, 1}}); }, ThrowsMessage<Error>(HasSubstr("found -1")));
  EXPECT_THAT([&] { mix({{0, 1}, {0, 2}}); }, ThrowsMessage<Error>(HasSubstr("twice")));
  EXPECT_THAT([&] { mix({{0, NAN}}); }, ThrowsMessage<Error>(HasSubstr("scale of an adapter")));
  EXPECT_THAT([&] { mix({{0, 1001}}); }, ThrowsMessage<Error>(HasSubstr("-1000 to 1000")));
  EXPECT_THAT(
      [&] {
        Load(GoldenPath("llama"))->adapters().Mix(std::vector<AdapterScale>{{0, 1}});
      },
      ThrowsMessage<Error>(HasSubstr("none was loaded")));
}

TEST_F(AdaptersTest, AlphaMustBeANumberInRange) {
  const GgufFile base = GgufFile::Open(GoldenPath("llama"));
  const TestPair pair = MakeTestPair(base.GetTensor("blk.1.attn_q.weight"), 3, 1);
  for (const float alpha : {NAN, INFINITY, -INFINITY, 1e7f}) {
    WriteTestAdapter(Path("bad.gguf"), AdapterMetadata("llama", alpha), {pair});
    EXPECT_THAT(
        [&] {
          Load(GoldenPath("llama"), {{Path("bad.gguf"), 1}});
        },
        ThrowsMessage<Error>(HasSubstr("adapter.lora.alpha: expected a number from -1000000")))
        << alpha;
  }
}

// Files that are wrong, each refused in a sentence that names the tensor and the shapes.
TEST_F(AdaptersTest, WhatDoesNotFitTheBaseIsRefused) {
  const GgufFile base = GgufFile::Open(GoldenPath("llama"));
  const TestPair good = MakeTestPair(base.GetTensor("blk.1.attn_q.weight"), 3, 1);
  const auto refused = [&](const TestPair& pair, const std::string& sentence) {
    WriteTestAdapter(Path("bad.gguf"), AdapterMetadata("llama", 1), {pair});
    EXPECT_THAT(
        [&] {
          Load(GoldenPath("llama"), {{Path("bad.gguf"), 1}});
        },
        ThrowsMessage<Error>(HasSubstr(sentence)));
  };
  const auto of = [&](const std::string& name) { return MakeTestPair(base.GetTensor(name), 2, 1); };
  const auto shaped = [&](uint64_t cols, uint64_t rows, uint64_t rank) {
    TestPair pair{good.name, cols, rows, rank, {}, {}};
    pair.a.resize(rank * cols);
    pair.b.resize(rank * rows);
    return pair;
  };
  refused(shaped(40, good.rows, 3),
          "shape of blk.1.attn_q.weight.lora_a: expected [48, 3] for the base's [48, 96], found "
          "[40, 3]");
  refused(shaped(good.cols, 95, 3), "expected [3, 96] for the base's [48, 96], found [3, 95]");
  refused(shaped(good.cols, good.rows, 1025),
          "rank of blk.1.attn_q.weight.lora_a: expected 1 to 1024, found 1025, shape [48, 1025]");
  TestPair unknown = good;
  unknown.name = "blk.9.attn_q.weight";
  refused(unknown, "it changes 'blk.9.attn_q.weight', which the base does not have");
  refused(of("token_embd.weight"), "can only change matrices of attention and FFNs");
  refused(of("output.weight"), "can only change matrices of attention and FFNs");
  TestPair infinite = good;
  infinite.b[5] = INFINITY;
  refused(infinite, "blk.1.attn_q.weight.lora_b has numbers that are not finite");
}

TEST_F(AdaptersTest, WhatIsNoAdapterOfTheBaseIsRefused) {
  const GgufFile base = GgufFile::Open(GoldenPath("llama"));
  const TestPair good = MakeTestPair(base.GetTensor("blk.1.attn_q.weight"), 3, 1);
  const auto refused = [&](const GgufMetadata& metadata, const std::string& sentence) {
    WriteTestAdapter(Path("bad.gguf"), metadata, {good});
    EXPECT_THAT(
        [&] {
          Load(GoldenPath("llama"), {{Path("bad.gguf"), 1}});
        },
        ThrowsMessage<Error>(HasSubstr(sentence)));
  };
  refused(AdapterMetadata("qwen2", 1), "architecture of its base: expected llama, found 'qwen2'");
  GgufMetadata other = AdapterMetadata("llama", 1);
  other.SetString("adapter.type", "ia3");
  refused(other, "adapter.type: expected lora, found 'ia3'");
  other = AdapterMetadata("llama", 1);
  other.SetString("general.type", "mmproj");
  refused(other, "general.type: expected adapter, found 'mmproj'");
  EXPECT_THAT(
      [&] {
        Load(GoldenPath("llama"), {{GoldenPath("llama"), 1}});
      },
      ThrowsMessage<Error>(HasSubstr("general.type: expected adapter")));
  EXPECT_THAT(
      [&] {
        Load(GoldenPath("llama"), {{Path("nowhere.gguf"), 1}});
      },
      ThrowsMessage<Error>(HasSubstr("nowhere.gguf")));
  EXPECT_THAT(
      [&] {
        Load(GoldenPath("llama"), {{folder_, 1}});
      },
      ThrowsMessage<Error>(HasSubstr("adapter_config.json")));
  // A half of a pair alone.
  WriteGguf(Path("half.gguf"), AdapterMetadata("llama", 1),
            {{good.name + ".lora_a", DType::kF32, {good.cols, good.rank}}}, {good.a});
  EXPECT_THAT(
      [&] {
        Load(GoldenPath("llama"), {{Path("half.gguf"), 1}});
      },
      ThrowsMessage<Error>(HasSubstr("blk.1.attn_q.weight.lora_b' is missing")));
  // Experts.
  const GgufFile mixture = GgufFile::Open(GoldenPath("mixtral"));
  TestPair experts = good;
  experts.name = "blk.0.ffn_down_exps.weight";
  WriteTestAdapter(Path("bad.gguf"), AdapterMetadata(Architecture(mixture), 1), {experts});
  EXPECT_THAT(
      [&] {
        Load(GoldenPath("mixtral"), {{Path("bad.gguf"), 1}});
      },
      ThrowsMessage<Error>(HasSubstr("adapters of experts are not computed")));
}

}  // namespace
}  // namespace hearth
