// A packed model of which only a part is in memory: the same logits, bit for bit, as in memory,
// whatever the budget, the policy, the pipeline, the backend and the number of threads
// (docs/architecture.md, invariant 3); and what happens when its file changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/test_adapters.h"
#include "measure/topic_walk.h"
#include "pass/test_passes.h"
#include "prepare/pack/test_pack_models.h"
#include "test_budgets.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class StreamedModelTest : public testing::Test {
 protected:
  static std::string Path() { return testing::TempDir() + "streamed_model.gguf"; }

  // As sparse as bamboo-7b, with predictors; 36 MiB of neurons.
  static void SetUpTestSuite() { SynthesizeSparseModel(Path()); }
  static void TearDownTestSuite() { std::filesystem::remove(Path()); }

  static std::unique_ptr<Engine> Load(const EngineOptions& options) {
    return Engine::Load(Path(), options);
  }

  static constexpr int kTokens = 17;

  static std::vector<TokenId> Text(Engine& engine) {
    const Model& model = engine.model();
    const auto topics = TopicMap::FromMetadata(model.metadata(), model.spec().vocab_size);
    if (topics) return TopicWalk(*topics).Take(kTokens);
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < kTokens; ++i) tokens.push_back(3 + 97 * i % 1900);
    return tokens;
  }

  // Of single neurons, without ranges.
  static StreamCounts CountsOfLists(const Engine& engine) {
    StreamCounts counts = engine.stream_counts();
    return counts -= engine.streamed()->range_counts();
  }

  // Logits of a prompt of `prompt` tokens, and after every token that follows.
  static std::vector<float> Logits(Engine& engine, size_t prompt,
                                   PassObserver* observer = nullptr) {
    const std::vector<TokenId> tokens = Text(engine);
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t count = begin == 0 ? prompt : 1;
      const BatchSequence sequence{&kv, std::span(tokens).subspan(begin, count)};
      engine.pass().Run(ShapeOf(sequence),
                        begin == 0 ? engine.prefill_selector() : engine.selector(), observer);
      const FloatView logits = engine.pass().Logits(static_cast<int64_t>(count) - 1, 1);
      all.insert(all.end(), logits.data, logits.data + logits.cols);
      begin += count;
    }
    return all;
  }
};

class ActivityCounter : public PassObserver {
 public:
  void OnFfnNeurons(const NeuronObservation& observed) override { counts += observed.all; }
  SparseFfnCounts counts;
};

TEST_F(StreamedModelTest, EveryBudgetPolicyAndPipelineGivesTheLogitsOfMemory) {
  std::vector<float> dense;
  for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated, FfnMode::kDense}) {
    EngineOptions options{
        .program_bytes = kTestProgramBytes, .threads = 2, .context = 64, .mode = mode};
    const std::vector<float> expected = Logits(*Load(options), 12);
    if (mode == FfnMode::kGated) dense = expected;
    if (mode == FfnMode::kDense) {
      EXPECT_EQ(expected, dense);
    }
    int64_t reads_ahead = 0;
    int trial = 0;
    // From the smallest to most of the neurons in memory.
    for (const uint64_t more_mib : {0, 6, 15}) {
      for (const CachePolicyKind policy : AllCachePolicies()) {
        options.threads = 1 + trial % 4;
        options.memory_bytes = SmallestLimit(Path(), options) + (more_mib << 20);
        options.streaming.pipeline = {
            .policy = policy,
            .pipeline = AllPipelines()[static_cast<size_t>(trial) % AllPipelines().size()],
            .lookahead = trial % 3 == 2 ? Lookahead::kAuto : Lookahead::kOn};
        options.streaming.io.backend = trial % 2 == 0 ? IoBackend::kAuto : IoBackend::kPread;
        options.streaming.pinned_share = 0.25 * (trial % 4);
        ++trial;
        const auto engine = Load(options);
        ASSERT_NE(engine->streamed(), nullptr);
        EXPECT_EQ(Logits(*engine, 12), expected) << FfnModeName(mode) << " " << more_mib;
        // 8 MiB of gates.
        const bool holds_gates = engine->streamed()->store().plan().holds_gates;
        EXPECT_EQ(holds_gates, mode == FfnMode::kGated && more_mib > 8);
        EXPECT_GT(engine->streamed()->range_counts().bytes_read, 0) << "prompts";
        const StreamCounts single = CountsOfLists(*engine);
        if (mode == FfnMode::kPredicted || holds_gates) {
          EXPECT_GT(single.misses, 0);
          EXPECT_GT(single.hits + single.pinned, 0);
          const bool looks_ahead =
              mode == FfnMode::kPredicted && options.streaming.pipeline.decode().reads_ahead;
          EXPECT_EQ(engine->streamed()->options().decode().reads_ahead, looks_ahead);
          // Only threads that wait find out what to read ahead.
          if (!looks_ahead) {
            EXPECT_EQ(single.reads_ahead, 0);
          }
          reads_ahead += single.reads_ahead;
          EXPECT_LE(single.used_ahead, single.reads_ahead);
          EXPECT_LE(single.used_ahead, single.misses);
        } else {
          EXPECT_EQ(single.neurons, 0);
        }
      }
    }
    EXPECT_EQ(reads_ahead > 0, mode == FfnMode::kPredicted) << FfnModeName(mode);
  }
}

// Logits of some sequences while they are decoded, one after the other.
std::vector<std::vector<float>> DecodedLogits(Engine& engine, size_t sequences, bool together) {
  constexpr size_t kPrompt = 9, kDecoded = 2;
  const TopicMap topics =
      *TopicMap::FromMetadata(engine.model().metadata(), engine.model().spec().vocab_size);
  std::vector<std::vector<float>> logits(sequences);
  std::vector<std::vector<TokenId>> texts;
  std::vector<KvSequence> kv;
  for (size_t i = 0; i < sequences; ++i) {
    texts.push_back(TopicWalk(topics, i).Take(kPrompt + kDecoded));
    kv.emplace_back(engine.kv_pool());
    const BatchSequence prompt{&kv[i], std::span(texts[i]).first(kPrompt)};
    engine.pass().Run({PassKind::kPrefill, {&prompt, 1}}, engine.prefill_selector());
  }
  const auto step = [&](size_t first, size_t count, size_t token) {
    std::vector<BatchSequence> batch;
    for (size_t i = first; i < first + count; ++i) {
      batch.push_back({&kv[i], std::span(texts[i]).subspan(token, 1)});
    }
    engine.pass().Run({PassKind::kDecode, batch}, engine.selector());
    const FloatView rows = engine.pass().Logits(0, static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) {
      const float* row = rows.row(static_cast<int64_t>(i));
      logits[first + i].insert(logits[first + i].end(), row, row + rows.cols);
    }
  };
  for (size_t token = kPrompt; token < kPrompt + kDecoded; ++token) {
    if (together) {
      step(0, sequences, token);
    } else {
      for (size_t i = 0; i < sequences; ++i) step(i, 1, token);
    }
  }
  return logits;
}

// In every mode; an FFN of single neurons has none.
TEST_F(StreamedModelTest, AdaptersOfAttentionAddTheSame) {
  const std::string adapter = Path() + ".lora";
  std::string architecture;
  {
    const GgufFile base = GgufFile::Open(Path());
    architecture = base.metadata().GetString("general.architecture");
    std::vector<TestPair> pairs;
    for (const GgufTensor& tensor : AdaptableTensors(base)) {
      pairs.push_back(MakeTestPair(tensor, 4, static_cast<uint32_t>(pairs.size())));
    }
    WriteTestAdapter(adapter, AdapterMetadata(architecture, 8), pairs);
  }
  for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated, FfnMode::kDense}) {
    EngineOptions options{
        .program_bytes = kTestProgramBytes, .threads = 2, .context = 64, .mode = mode};
    const std::vector<float> base = Logits(*Load(options), 12);
    options.adapters = {{adapter, 1}};
    const std::vector<float> expected = Logits(*Load(options), 12);
    EXPECT_NE(expected, base);
    options.memory_bytes = SmallestLimit(Path(), options) + (uint64_t{6} << 20);
    const auto engine = Load(options);
    ASSERT_NE(engine->streamed(), nullptr);
    EXPECT_EQ(Logits(*engine, 12), expected) << FfnModeName(mode);
  }
  TestPair ffn = MakeTestPair(GgufFile::Open(Path()).GetTensor("blk.0.attn_q.weight"), 2, 1);
  ffn.name = "blk.0.ffn_up.weight";
  WriteTestAdapter(adapter, AdapterMetadata(architecture, 1), {ffn});
  EXPECT_THAT(
      [&] {
        Load({.adapters = {{adapter, 1}}});
      },
      testing::ThrowsMessage<Error>(
          testing::AllOf(HasSubstr("single neurons"), HasSubstr("'predicted' mode"))));
  std::filesystem::remove(adapter);
}

TEST_F(StreamedModelTest, SequencesThatAreDecodedTogetherHaveTheLogitsThatTheyHaveAlone) {
  constexpr size_t kSequences = 9;
  for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated, FfnMode::kDense}) {
    EngineOptions options{.program_bytes = kTestProgramBytes,
                          .threads = 2,
                          .context = 64,
                          .kv_sequences = kSequences,
                          .mode = mode};
    const auto resident = Load(options);
    const auto expected = DecodedLogits(*resident, kSequences, false);
    EXPECT_EQ(DecodedLogits(*resident, kSequences, true), expected) << FfnModeName(mode);
    options.streaming.pipeline.lookahead = Lookahead::kOn;
    // Also fewer at a time than are decoded, whose lists are not guessed.
    for (const int64_t sequences : {1, 4, 9}) {
      options.kv_sequences = sequences;
      options.context = 1024;  // pages for all
      options.memory_bytes = SmallestLimit(Path(), options) + (uint64_t{12} << 20);
      const auto streamed = Load(options);
      ASSERT_NE(streamed->streamed(), nullptr);
      EXPECT_EQ(DecodedLogits(*streamed, kSequences, true), expected)
          << FfnModeName(mode) << ", room for " << sequences;
      const bool looks_ahead = mode == FfnMode::kPredicted && sequences == 9;
      // Only threads that wait find out what to read ahead; sooner or later they do.
      const auto has_read = [&] { return streamed->streamed()->counts().reads_ahead > 0; };
      for (int i = 0; looks_ahead && !has_read() && i < 20; ++i) {
        DecodedLogits(*streamed, kSequences, true);
      }
      EXPECT_EQ(has_read(), looks_ahead) << FfnModeName(mode) << ", room for " << sequences;
    }
  }
}

TEST_F(StreamedModelTest, GatesInMemoryGiveTheLogitsOfMemoryForExpertsAndThresholds) {
  const std::string path = testing::TempDir() + "streamed_other.gguf";
  const struct {
    const char* shape;
    std::vector<float> thresholds;
  } models[] = {
      {R"({"arch": "mixtral", "hidden_size": 256, "intermediate_size": 4096, "num_layers": 3,
           "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000,
           "activation": "relu", "num_experts": 4, "num_experts_per_token": 2})",
       {}},
      {R"({"hidden_size": 256, "intermediate_size": 16384, "num_layers": 3, "num_heads": 4,
           "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000, "activation": "silu"})",
       {0.4f, 0.5f, 0.6f}}};
  for (const auto& model : models) {
    // Nothing can be planted in what is never zero.
    std::optional<PlantedOptions> planted;
    if (model.thresholds.empty()) planted.emplace();
    SynthesizeModel(ParseShape(model.shape, "other"),
                    {.threads = 2, .planted = planted, .packed = true}, path);
    EngineOptions options{.program_bytes = kTestProgramBytes,
                          .threads = 2,
                          .context = 64,
                          .mode = FfnMode::kGated,
                          .silu_thresholds = model.thresholds};
    const std::vector<float> expected = Logits(*Engine::Load(path, options), 12);
    for (size_t i = 0; i < AllPipelines().size(); ++i) {
      options.threads = 1 + static_cast<int>(i);
      options.memory_bytes = SmallestLimit(path, options) + (uint64_t{12} << 20);
      options.streaming.pipeline.pipeline = AllPipelines()[i];
      options.streaming.pinned_share = 0.2 * static_cast<double>(i);
      const auto engine = Engine::Load(path, options);
      ASSERT_NE(engine->streamed(), nullptr);
      EXPECT_TRUE(engine->streamed()->store().plan().holds_gates);
      EXPECT_EQ(Logits(*engine, 12), expected) << PipelineName(AllPipelines()[i]);
      EXPECT_GT(CountsOfLists(*engine).misses, 0);
      EXPECT_LT(CountsOfLists(*engine).neurons, engine->pass().ffn_counts().gate / 4);
    }
  }
  std::filesystem::remove(path);
}

// One by one is slower than in order where most neurons fire
// (docs/decisions/0010-gates-in-memory.md).
TEST_F(StreamedModelTest, GatesAreHeldWhereFewNeuronsFireOrSomebodySaysSo) {
  const std::string path = testing::TempDir() + "streamed_active.gguf";
  const ModelShape shape = ParseShape(
      R"({"hidden_size": 256, "intermediate_size": 8192, "num_layers": 3, "num_heads": 4,
          "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000, "activation": "relu"})",
      "active");
  for (const double active : {0.2, 0.6}) {
    const PlantedOptions planted = {.active = active, .skew = 0.75};
    SynthesizeModel(shape, {.threads = 2, .planted = planted, .packed = true}, path);
    EngineOptions options{
        .program_bytes = kTestProgramBytes, .threads = 2, .context = 64, .mode = FfnMode::kGated};
    const std::vector<float> expected = Logits(*Engine::Load(path, options), 12);
    for (const std::optional<bool> said : {std::optional<bool>(), {true}, {false}}) {
      options.streaming.holds_gates = said;
      options.memory_bytes = SmallestLimit(path, options) + (uint64_t{6} << 20);
      const auto engine = Engine::Load(path, options);
      ASSERT_NE(engine->streamed(), nullptr);
      EXPECT_EQ(engine->streamed()->store().plan().holds_gates, said.value_or(active < 0.3));
      EXPECT_EQ(Logits(*engine, 12), expected) << active;
    }
  }
  std::filesystem::remove(path);
}

TEST_F(StreamedModelTest, ObserversSeeTheSameWithGatesInMemory) {
  EngineOptions options{
      .program_bytes = kTestProgramBytes, .threads = 2, .context = 64, .mode = FfnMode::kGated};
  ActivityCounter resident, streamed;
  const std::vector<float> expected = Logits(*Load(options), 12, &resident);
  options.memory_bytes = SmallestLimit(Path(), options) + (uint64_t{16} << 20);
  const auto engine = Load(options);
  ASSERT_TRUE(engine->streamed()->store().plan().holds_gates);
  EXPECT_EQ(Logits(*engine, 12, &streamed), expected);
  // All neurons of few tokens are watched with the operator of prompts, whose gates are added up in
  // another order.
  EXPECT_EQ(streamed.counts.gate, resident.counts.gate);
  EXPECT_NEAR(static_cast<double>(streamed.counts.up), static_cast<double>(resident.counts.up),
              0.001 * static_cast<double>(resident.counts.up));
}

TEST_F(StreamedModelTest, KeepsItsPromiseInTheLedger) {
  for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated}) {
    for (const PipelineKind pipeline : AllPipelines()) {
      EngineOptions options{
          .program_bytes = kTestProgramBytes, .threads = 2, .context = 64, .mode = mode};
      options.streaming.pipeline.pipeline = pipeline;
      options.memory_bytes = SmallestLimit(Path(), options) + (uint64_t{16} << 20);
      const auto engine = Load(options);
      ASSERT_NE(engine->streamed(), nullptr);
      uint64_t promised = 0;
      for (const auto& [name, bytes] : engine->planned_ledger()) promised += bytes;
      EXPECT_LE(promised, *options.memory_bytes);
      EXPECT_GT(promised, *options.memory_bytes - (uint64_t{6} << 20));
      EXPECT_EQ(engine->budget().used_bytes(), promised);
      EXPECT_EQ(engine->planned_ledger().count("gates"), mode == FfnMode::kGated ? 1 : 0);
    }
  }
}

TEST_F(StreamedModelTest, TooLittleIsRefusedWithWhatWouldDo) {
  const EngineOptions options{.memory_bytes = kTestProgramBytes + (uint64_t{9} << 20),
                              .program_bytes = kTestProgramBytes,
                              .context = 64};
  try {
    Load(options);
    FAIL() << "it cannot fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_THAT(error.what(), HasSubstr("the smallest that can is"));
  }
}

class StreamedModes : public StreamedModelTest, public testing::WithParamInterface<FfnMode> {};

TEST_P(StreamedModes, AFileThatChangesFailsTheNextTokenOnly) {
  const std::string copy = testing::TempDir() + "streamed_copy.gguf";
  std::filesystem::copy_file(Path(), copy, std::filesystem::copy_options::overwrite_existing);
  EngineOptions options{
      .program_bytes = kTestProgramBytes, .threads = 2, .context = 64, .mode = GetParam()};
  options.memory_bytes = SmallestLimit(Path(), options) + (uint64_t{16} << 20);
  const auto engine = Engine::Load(copy, options);
  ASSERT_NE(engine->streamed(), nullptr);
  const std::vector<TokenId> tokens = Text(*engine);
  KvSequence kv(engine->kv_pool());
  const auto pass = [&] {
    const BatchSequence sequence{&kv, std::span(tokens).first(1)};
    engine->pass().Run(ShapeOf(sequence), engine->selector());
  };
  pass();
  const auto size = std::filesystem::file_size(copy);
  std::filesystem::resize_file(copy, size / 2);
  try {
    pass();
    FAIL() << "a truncated file went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("streamed_copy.gguf"));
  }
  EXPECT_EQ(kv.length(), 1) << "the token of the pass that failed is not in the cache";
  std::filesystem::remove(copy);
}

INSTANTIATE_TEST_SUITE_P(Modes, StreamedModes,
                         testing::Values(FfnMode::kPredicted, FfnMode::kGated),
                         [](const auto& mode) { return std::string(FfnModeName(mode.param)); });

}  // namespace
}  // namespace hearth
