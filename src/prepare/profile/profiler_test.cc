#include "prepare/profile/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/session/text_windows.h"
#include "format/packed_file.h"
#include "model/weights.h"
#include "ops/repack.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/synth.h"
#include "sparsity/profile_stats.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) {
  return SourcePath("tests/goldens/") + name + ".gguf";
}

// Text that the tiny vocabularies of the goldens have tokens for.
std::vector<TokenId> SomeTokens(const Engine& engine, size_t count) {
  const auto vocab = static_cast<size_t>(engine.model().spec().vocab_size);
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(3 + i * i * 7 % (vocab - 3)));
  }
  return tokens;
}

// One computed FFN of one token.
struct Seen {
  std::vector<bool> fired;
  std::vector<float> product;
};

// Keeps everything, by (layer, expert) and token of the run.
class FiringRecorder : public PassObserver {
 public:
  explicit FiringRecorder(float threshold) : threshold_(threshold) {}

  void OnFfnGateUp(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView gate,
                   FloatView) override {
    for (size_t r = 0; r < tokens.size(); ++r) {
      const float* row = gate.row(static_cast<int64_t>(r));
      Seen& s = seen[{layer, expert}][base + tokens[r]];
      for (int64_t j = 0; j < gate.cols; ++j) s.fired.push_back(row[j] > threshold_);
    }
  }
  void OnFfnActivation(int64_t layer, int64_t expert, std::span<const int64_t> tokens,
                       FloatView a) override {
    for (size_t r = 0; r < tokens.size(); ++r) {
      const float* row = a.row(static_cast<int64_t>(r));
      seen[{layer, expert}][base + tokens[r]].product.assign(row, row + a.cols);
    }
  }

  std::map<std::pair<int64_t, int64_t>, std::map<int64_t, Seen>> seen;
  int64_t base = 0;  // of the batch, in the run

 private:
  float threshold_;
};

// Every window token by token: nothing of this is the profiler's.
FiringRecorder RecordAll(Engine& engine, std::span<const TokenId> text) {
  const FfnSpec& ffn = MainFfn(engine.model().spec());
  FiringRecorder recorder(ffn.activation == FfnActivation::kFatRelu ? ffn.threshold : 0);
  DenseSelector dense;
  const TokenId bos = engine.model().tokenizer().special().bos;
  const auto room = static_cast<size_t>(engine.context()) - (bos >= 0 ? 1 : 0);
  for (size_t begin = 0; begin < text.size(); begin += room) {
    KvSequence kv(engine.kv_pool());
    std::vector<TokenId> window(
        text.begin() + static_cast<std::ptrdiff_t>(begin),
        text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), begin + room)));
    if (bos >= 0) window.insert(window.begin(), bos);
    for (const TokenId& token : window) {
      const BatchSequence sequence{&kv, {&token, 1}};
      engine.pass().Run({PassKind::kPrefill, {&sequence, 1}}, dense, &recorder);
      ++recorder.base;
    }
  }
  return recorder;
}

ModelProfile Plan(Engine& engine, std::span<const TokenId> text) {
  return PlanProfile(engine.model().spec(), 42, text,
                     {.bos = engine.model().tokenizer().special().bos,
                      .context = engine.context(),
                      .kv_codec = engine.pass().limits().kv_codec});
}

ModelProfile ProfileOf(Engine& engine, std::span<const TokenId> text,
                       const ProfileRunOptions& options = {}) {
  ModelProfile profile = Plan(engine, text);
  RunProfile(engine, text, profile, options);
  return profile;
}

void ExpectSameStatistics(const ModelProfile& a, const ModelProfile& b) {
  EXPECT_EQ(a.text_tokens, b.text_tokens);
  ASSERT_EQ(a.ffns.size(), b.ffns.size());
  for (size_t i = 0; i < a.ffns.size(); ++i) {
    EXPECT_EQ(a.ffns[i].tokens, b.ffns[i].tokens) << i;
    EXPECT_EQ(a.ffns[i].gate_fired, b.ffns[i].gate_fired) << i;
    EXPECT_EQ(a.ffns[i].active, b.ffns[i].active) << i;
    EXPECT_EQ(a.ffns[i].mass, b.ffns[i].mass) << i;
    EXPECT_EQ(a.ffns[i].down_norm, b.ffns[i].down_norm) << i;
  }
}

void ExpectMatches(const ModelProfile& profile, const FiringRecorder& recorder) {
  for (int64_t layer = 0; layer < profile.num_layers; ++layer) {
    for (int64_t expert = 0; expert < profile.ffns_per_layer(); ++expert) {
      const FfnProfile& ffn = profile.At(layer, expert);
      const auto found = recorder.seen.find({layer, expert});
      const size_t tokens = found == recorder.seen.end() ? 0 : found->second.size();
      EXPECT_EQ(ffn.tokens, tokens);
      std::vector<uint64_t> fired(ffn.active.size()), active(ffn.active.size());
      std::vector<double> mass(ffn.active.size());
      for (size_t j = 0; tokens > 0 && j < mass.size(); ++j) {
        for (const auto& [token, seen] : found->second) {
          fired[j] += seen.fired[j] ? 1 : 0;
          active[j] += seen.product[j] != 0 ? 1 : 0;
          mass[j] += static_cast<double>(std::fabs(seen.product[j]));
        }
      }
      EXPECT_EQ(ffn.gate_fired, fired) << layer << " " << expert;
      EXPECT_EQ(ffn.active, active) << layer << " " << expert;
      EXPECT_EQ(ffn.mass, mass) << layer << " " << expert;
    }
  }
}

class ProfilerTest : public testing::Test {
 protected:
  ProfilerTest() : folder_(testing::TempDir() + "/profiler." + std::to_string(getpid())) {
    fs::create_directory(folder_);
  }
  ~ProfilerTest() override { fs::remove_all(folder_); }

  // A model whose experts are sparse inside.
  std::string ReluExperts() {
    const std::string path = folder_ + "/experts.gguf";
    const ModelShape shape = ParseShape(
        R"({"arch": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_layers": 2,
            "num_heads": 4, "num_kv_heads": 2, "vocab_size": 300, "num_experts": 5,
            "num_experts_per_token": 2, "activation": "relu", "context_length": 64})",
        "relu-experts");
    SynthesizeModel(shape, {.quant = DType::kQ8_0, .seed = 3}, path);
    return path;
  }

  const std::string folder_;
};

TEST_F(ProfilerTest, CountsAreThoseOfASecondObserver) {
  for (const std::string& path :
       {Golden("llama"), Golden("llama-relu"), Golden("llama-fatrelu"), Golden("llama-drelu"),
        Golden("mixtral"), Golden("qwen3moe"), Golden("qwen2"), ReluExperts()}) {
    const auto engine = Engine::Load(path, {.threads = 2, .context = 20});
    const std::vector<TokenId> text = SomeTokens(*engine, 50);
    SCOPED_TRACE(path);
    const ModelProfile profile = ProfileOf(*engine, text);
    EXPECT_TRUE(profile.complete());
    ExpectMatches(profile, RecordAll(*engine, text));
  }
}

TEST_F(ProfilerTest, TheEmbeddedModelIsAsSparseAsItsCardSays) {
  const std::string path = SourcePath("models/hearth-stories-5m.gguf");
  const auto engine = Engine::Load(path, {});
  std::vector<TokenId> text =
      engine->model().tokenizer().Encode(ReadWholeFile(SourcePath("models/hearth-stories.txt")));
  text.resize(1100);
  const ModelProfile profile = ProfileOf(*engine, text);
  EXPECT_EQ(profile.total_tokens, 1103u) << "three windows, each after BOS";
  ExpectMatches(profile, RecordAll(*engine, text));
  const ActivationSummary all = Summarize(profile, -1);
  EXPECT_NEAR(all.active_rate, 0.079, 0.01);
  EXPECT_GT(all.gate_rate, all.active_rate) << "dReLU: the gate alone does not make it";
}

TEST_F(ProfilerTest, ThreadsAndBatchesChangeNothing) {
  for (const std::string& path : {Golden("llama-drelu"), ReluExperts()}) {
    std::optional<ModelProfile> expected;
    for (const int threads : {1, 2, 5}) {
      for (const int64_t batch : {256, 7, 1}) {
        const auto engine =
            Engine::Load(path, {.threads = threads, .context = 40, .batch_tokens = batch});
        const ModelProfile profile = ProfileOf(*engine, SomeTokens(*engine, 90));
        if (!expected) expected = profile;
        ExpectSameStatistics(profile, *expected);
      }
    }
  }
}

// Runs until the profile holds at least `tokens`, then through a file.
ModelProfile StopAndSave(Engine& engine, std::span<const TokenId> text, ModelProfile profile,
                         uint64_t tokens, const std::string& path) {
  std::atomic<bool> cancel{false};
  ProfileRunOptions options;
  options.cancel = &cancel;
  options.progress = [&](uint64_t done, uint64_t) { cancel = cancel || done >= tokens; };
  options.save = [&](const ModelProfile& p) { SaveProfile(p, path); };
  RunProfile(engine, text, profile, options);
  return LoadProfile(path);
}

TEST_F(ProfilerTest, StoppedAndContinuedIsTheSameAsAtOnce) {
  for (const std::string& path : {Golden("llama-drelu"), ReluExperts(), Golden("qwen2")}) {
    const EngineOptions options = {.threads = 2, .context = 40, .batch_tokens = 7};
    const auto engine = Engine::Load(path, options);
    const std::vector<TokenId> text = SomeTokens(*engine, 100);
    const ModelProfile expected = ProfileOf(*engine, text);
    for (const uint64_t step : {1u, 10u, 33u, 41u}) {
      ModelProfile profile = Plan(*engine, text);
      int stops = 0;
      while (!profile.complete()) {
        const auto again = Engine::Load(path, options);
        const uint64_t before = profile.text_tokens;
        profile = StopAndSave(*again, text, profile, before + step, folder_ + "/profile");
        ASSERT_GT(profile.text_tokens, before);
        ++stops;
      }
      EXPECT_GT(stops, 2);
      ExpectSameStatistics(profile, expected);
      EXPECT_EQ(DifferenceOfRuns(profile, Plan(*engine, text)), "");
    }
  }
}

TEST_F(ProfilerTest, SavesAsItGoes) {
  const auto engine = Engine::Load(Golden("llama-relu"), {.context = 20});
  const std::vector<TokenId> text = SomeTokens(*engine, 60);
  std::vector<uint64_t> saved;
  ProfileRunOptions options;
  options.save = [&](const ModelProfile& p) { saved.push_back(p.text_tokens); };
  options.save_seconds = 0;
  ProfileOf(*engine, text, options);
  EXPECT_EQ(saved, (std::vector<uint64_t>{20, 40, 60, 64, 64}));
  saved.clear();
  options.save_seconds = 1e9;
  ProfileOf(*engine, text, options);
  EXPECT_EQ(saved, (std::vector<uint64_t>{64})) << "at the end";
}

TEST_F(ProfilerTest, ARunOfAnotherKindIsNotContinued) {
  const auto engine = Engine::Load(Golden("llama-drelu"), {.context = 40});
  std::vector<TokenId> text = SomeTokens(*engine, 50);
  const ModelProfile plan = Plan(*engine, text);
  ModelProfile other = plan;
  other.model_hash ^= 1;
  EXPECT_THAT(DifferenceOfRuns(other, plan), HasSubstr("another model"));
  other = plan;
  other.context = 30;
  EXPECT_THAT(DifferenceOfRuns(other, plan), HasSubstr("windows of 30 tokens instead of 40"));
  other = plan;
  other.kv_codec = KvCodec::kF32;
  EXPECT_THAT(DifferenceOfRuns(other, plan), HasSubstr("KV cache"));
  text[10] ^= 1;
  EXPECT_EQ(DifferenceOfRuns(Plan(*engine, text), plan), "another text");
  text.pop_back();
  EXPECT_EQ(DifferenceOfRuns(Plan(*engine, text), plan), "another text");
}

TEST_F(ProfilerTest, AnEmptyTextIsRefused) {
  const auto engine = Engine::Load(Golden("llama-drelu"), {});
  EXPECT_THAT([&] { Plan(*engine, {}); },
              testing::ThrowsMessage<Error>(HasSubstr("the text is empty")));
}

TEST_F(ProfilerTest, NormsAreThoseOfTheColumnsOfDown) {
  for (const std::string& path : {Golden("llama-relu"), Golden("mixtral"), ReluExperts()}) {
    const auto engine = Engine::Load(path, {.context = 20});
    const ModelProfile profile = ProfileOf(*engine, SomeTokens(*engine, 3));
    const GgufFile file = GgufFile::Open(path);
    ModelWeights weights;
    for (const WeightDecl& decl : DeclareWeights(engine->model().spec(), weights)) {
      if (decl.name.find("ffn_down") == std::string::npos) continue;
      const int64_t layer = std::stoll(decl.name.substr(4));
      const GgufTensor& tensor = MatchTensor(file, decl);
      std::vector<std::byte> stored(tensor.bytes);
      file.ReadTensor(tensor, 0, stored);
      std::vector<float> values(tensor.num_weights());
      ToFloat(tensor.dtype, stored, values);
      for (int64_t e = 0; e < decl.experts; ++e) {
        for (int64_t j = 0; j < decl.cols; ++j) {
          double sum = 0;
          for (int64_t r = 0; r < decl.rows; ++r) {
            const auto w = values[static_cast<size_t>((e * decl.rows + r) * decl.cols + j)];
            sum += static_cast<double>(w) * static_cast<double>(w);
          }
          EXPECT_EQ(profile.At(layer, e).down_norm[static_cast<size_t>(j)],
                    static_cast<float>(std::sqrt(sum)));
        }
      }
    }
  }
}

TEST_F(ProfilerTest, TheTraceReplaysWhatWasActive) {
  for (const std::string& path : {Golden("llama-drelu"), Golden("mixtral"), ReluExperts(),
                                  SourcePath("models/hearth-stories-5m.gguf")}) {
    for (const uint64_t most : {uint64_t{UINT64_MAX}, uint64_t{23}}) {
      const auto engine = Engine::Load(path, {.context = 40, .batch_tokens = 16});
      const std::vector<TokenId> text = SomeTokens(*engine, 70);
      const FfnSpec& ffn = MainFfn(engine->model().spec());
      ModelProfile profile = Plan(*engine, text);
      const std::string trace_path = folder_ + "/trace";
      TraceWriter writer(trace_path, TraceHeaderOf(profile, ffn.num_experts_per_token));
      ProfileRunOptions options;
      options.trace = &writer;
      options.trace_tokens = most;
      RunProfile(*engine, text, profile, options);
      writer.Finish();

      const FiringRecorder recorder = RecordAll(*engine, text);
      TraceReader reader(OpenFileReader(trace_path));
      EXPECT_EQ(reader.num_tokens(), std::min<uint64_t>(most, profile.total_tokens));
      const TextWindows windows(text, engine->model().tokenizer().special().bos, 40);
      std::map<std::pair<int64_t, int64_t>, uint64_t> lists;
      TraceToken token;
      for (int64_t t = 0; reader.Next(token); ++t) {
        const auto window = static_cast<uint64_t>(t) / 40, at = static_cast<uint64_t>(t) % 40;
        EXPECT_EQ(token.id, windows.Window(window)[at]);
        EXPECT_EQ(token.starts_sequence, at == 0);
        for (int64_t list = 0; list < token.num_lists(); ++list) {
          const int64_t layer = list / reader.header().lists_per_layer();
          const Seen& seen = recorder.seen.at({layer, token.expert(list)}).at(t);
          std::vector<int32_t> active;
          for (size_t j = 0; j < seen.product.size(); ++j) {
            if (seen.product[j] != 0) active.push_back(static_cast<int32_t>(j));
          }
          EXPECT_THAT(token.neurons(list), testing::ElementsAreArray(active));
          ++lists[{layer, token.expert(list)}];
        }
      }
      if (most > profile.total_tokens) {
        for (const auto& [ffn_of, count] : lists) {
          EXPECT_EQ(count, profile.At(ffn_of.first, ffn_of.second).tokens) << "routed tokens";
        }
      }
    }
  }
}

TEST_F(ProfilerTest, AContinuedRunIsNotTraced) {
  const auto engine = Engine::Load(Golden("llama-drelu"), {.context = 40, .batch_tokens = 8});
  const std::vector<TokenId> text = SomeTokens(*engine, 70);
  ModelProfile profile = StopAndSave(*engine, text, Plan(*engine, text), 20, folder_ + "/profile");
  ASSERT_FALSE(profile.complete());
  TraceWriter writer(folder_ + "/trace", TraceHeaderOf(profile, 0));
  ProfileRunOptions options;
  options.trace = &writer;
  EXPECT_THROW(RunProfile(*engine, text, profile, options), Error);
}

TEST_F(ProfilerTest, WhatItHoldsIsChargedToTheBudget) {
  const auto engine = Engine::Load(Golden("llama-drelu"), {.context = 40});
  const std::vector<TokenId> text = SomeTokens(*engine, 10);
  std::map<std::string, uint64_t> ledger;
  ProfileRunOptions options;
  options.progress = [&](uint64_t, uint64_t) { ledger = engine->budget().Ledger(); };
  const ModelProfile profile = ProfileOf(*engine, text, options);
  EXPECT_EQ(ledger["profile"], ProfileBytes(profile));
  EXPECT_EQ(engine->budget().Ledger().count("profile"), 0u) << "given back";

  const BudgetCharge rest = engine->budget().Charge(
      "rest", engine->budget().limit_bytes() - engine->budget().used_bytes() - 100);
  ModelProfile refused = Plan(*engine, text);
  try {
    RunProfile(*engine, text, refused, {});
    FAIL() << "100 bytes hold no profile";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
  }
}

}  // namespace
}  // namespace hearth
