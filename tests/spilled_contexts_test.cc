// Keys and values of long contexts lie on flash: a model has the logits that it has with all of
// them in memory, bit for bit, and a disk that fails costs the request that needed it
// (docs/decisions/0017-kv-on-flash.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/session/batch_scheduler.h"
#include "engine/session/session_keeper.h"
#include "prepare/pack/test_pack_models.h"
#include "storage/async/faulty_file.h"
#include "test_budgets.h"
#include "test_contexts.h"

namespace hearth {
namespace {

constexpr int64_t kContext = 640;
constexpr int64_t kBatch = 64;
constexpr size_t kContexts = 3;

// Few frames: a page for a pass's tokens, and two for each context.
constexpr int64_t kFrames = 8;

constexpr const char* kDense = R"({"hidden_size": 128, "intermediate_size": 256, "num_layers": 6,
    "num_heads": 4, "num_kv_heads": 2, "head_dim": 32, "vocab_size": 600})";
constexpr const char* kWide = R"({"hidden_size": 256, "intermediate_size": 3072, "num_layers": 6,
    "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600})";
// Three layers of four have a window.
constexpr const char* kWindows = R"({"arch": "smallthinker", "hidden_size": 128,
    "intermediate_size": 64, "num_layers": 8, "num_heads": 4, "num_kv_heads": 2, "head_dim": 32,
    "vocab_size": 600, "num_experts": 4, "num_experts_per_token": 2, "sliding_window": 100})";

class SpilledModel {
 public:
  SpilledModel(const std::string& name, const char* shape)
      : path_(testing::TempDir() + "spilled_contexts_" + name + ".gguf") {
    if (shape == nullptr) {
      SynthesizeSparseModel(path_);
    } else {
      SynthesizeModel(ParseShape(shape, name), {.quant = DType::kQ8_0, .threads = 2}, path_);
    }
  }
  ~SpilledModel() { std::filesystem::remove(path_); }
  SpilledModel(const SpilledModel&) = delete;
  SpilledModel& operator=(const SpilledModel&) = delete;

  const std::string& path() const { return path_; }
  static EngineOptions Options(KvCodec codec) {
    return {.program_bytes = kTestProgramBytes,
            .threads = 2,
            .context = kContext,
            .kv_sequences = kContexts,
            .kv_codec = codec,
            .batch_tokens = kBatch};
  }
  // So that so many pages are in memory.
  static EngineOptions Spilling(EngineOptions options, const KvLayout& layout,
                                int64_t frames = kFrames) {
    const KvPlan plan{.tokens = kContext * int64_t{kContexts},
                      .slots = KvLayout::PagesFor(kContext) * int64_t{kContexts} + 1 - frames};
    options.kv_memory_bytes = plan.memory_bytes(layout);
    options.kv_folder = testing::TempDir();
    return options;
  }

 private:
  const std::string path_;
};

struct SpilledCase {
  const char* name;
  const char* shape;
  KvCodec codec = KvCodec::kF16;
  FfnMode mode = FfnMode::kDense;
  uint64_t more_mib = 0;  // a limit so much above the smallest; 0: all weights are in memory
};

class SpilledContextsTest : public testing::TestWithParam<SpilledCase> {};

TEST_P(SpilledContextsTest, HaveTheBitsOfResidentOnes) {
  const SpilledCase& of = GetParam();
  const SpilledModel model(of.name, of.shape);
  EngineOptions options = SpilledModel::Options(of.codec);
  options.mode = of.mode;
  const std::unique_ptr<Engine> resident = Engine::Load(model.path(), options);
  ASSERT_EQ(resident->kv_pool().flash(), nullptr);
  options = SpilledModel::Spilling(options, resident->kv_pool().layout());
  if (of.more_mib > 0) {
    options.memory_bytes = SmallestLimit(model.path(), options) + (of.more_mib << 20);
  }
  const std::unique_ptr<Engine> spilled = Engine::Load(model.path(), options);
  ASSERT_EQ(spilled->is_streamed(), of.more_mib > 0);
  const KvPool& pool = spilled->kv_pool();
  ASSERT_NE(pool.flash(), nullptr);
  ASSERT_EQ(pool.frames().count(), kFrames);
  const uint64_t used = spilled->budget().used_bytes();
  {
    ContextPair contexts(*resident, *spilled, {.contexts = kContexts, .most_tokens = kBatch});
    for (size_t i = 0; i < kContexts; ++i) {
      for (int64_t length = 0; length < kContext / 2; length += kBatch) {
        contexts.Extend(i, kBatch);
      }
    }
    for (int step = 0; step < 100; ++step) {
      contexts.Step();
      ASSERT_FALSE(HasFailure()) << "step " << step;
      ASSERT_EQ(spilled->budget().used_bytes(), used);
    }
  }
  EXPECT_EQ(pool.flash()->used_slots(), 0);
  EXPECT_EQ(pool.free_pages(), pool.num_pages());
  EXPECT_GT(pool.flash()->counts().written_bytes, 0u);
  EXPECT_GT(pool.flash()->counts().read_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Models, SpilledContextsTest,
    testing::Values(SpilledCase{"f32", kDense, KvCodec::kF32},
                    SpilledCase{"f16", kDense, KvCodec::kF16},
                    SpilledCase{"k8v8", kDense, KvCodec::kK8V8},
                    SpilledCase{"k4v8", kDense, KvCodec::kK4V8},
                    SpilledCase{"k8", kDense, KvCodec::kK8},
                    SpilledCase{"k4", kDense, KvCodec::kK4}, SpilledCase{"windows", kWindows},
                    SpilledCase{"streamed", kWide, KvCodec::kF16, FfnMode::kDense, 1},
                    SpilledCase{"predicted", nullptr, KvCodec::kF16, FfnMode::kPredicted, 8}),
    [](const auto& model) { return std::string(model.param.name); });

// A disk that fails when it is told to.
struct BadDisk {
  bool is_full = false;
  FaultScript reads;

  std::function<UnnamedFile(const std::string&, uint64_t)> Opener() {
    return [this](const std::string& folder, uint64_t bytes) {
      UnnamedFile file = OpenUnnamedFile(folder, bytes);
      file.file = std::make_unique<FaultyFile>(std::move(file.file), reads);
      file.write = [this, write = std::move(file.write)](uint64_t offset,
                                                         std::span<const std::byte> data) {
        return is_full ? ENOSPC : write(offset, data);
      };
      return file;
    };
  }
};

class SpilledRequestsTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> Load(bool spills, int64_t frames = kFrames) {
    EngineOptions options = SpilledModel::Options(KvCodec::kF16);
    const std::unique_ptr<Engine> resident = Engine::Load(model_.path(), options);
    if (!spills) return Engine::Load(model_.path(), options);
    options = SpilledModel::Spilling(options, resident->kv_pool().layout(), frames);
    options.open_kv_file = disk_.Opener();
    return Engine::Load(model_.path(), options);
  }

  // A prompt of so many tokens, and how the request ends. Prompts of different texts differ from
  // their first token on; those of one begin alike.
  struct Asked {
    int64_t prompt = 0;
    int64_t text = prompt;
    BatchOutcome outcome = {};
  };
  static void Add(BatchScheduler& scheduler, Asked& asked) {
    BatchRequest request;
    for (int64_t i = 0; i < asked.prompt; ++i) {
      request.prompt.push_back(static_cast<TokenId>(3 + (i * 37 + asked.text) % 590));
    }
    request.generate.max_tokens = 40;
    request.on_done = [&asked](const BatchOutcome& outcome) { asked.outcome = outcome; };
    scheduler.Add(std::move(request));
  }
  static void Run(Engine& engine, std::vector<Asked>& all) {
    BatchScheduler scheduler(engine, {.most_running = kContexts});
    for (Asked& asked : all) Add(scheduler, asked);
    while (!scheduler.is_idle()) scheduler.Step();
    EXPECT_EQ(scheduler.fault(), "");
  }

  const SpilledModel model_{"requests", kDense};
  BadDisk disk_;
};

TEST_F(SpilledRequestsTest, AnswerAsResidentOnes) {
  std::vector<Asked> expected = {{500}, {300}, {420}, {90}}, found = expected;
  Run(*Load(false), expected);
  const std::unique_ptr<Engine> engine = Load(true);
  Run(*engine, found);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_FALSE(found[i].outcome.error) << found[i].outcome.error->what();
    EXPECT_EQ(found[i].outcome.generated, expected[i].outcome.generated);
  }
  EXPECT_GT(engine->kv_pool().flash()->counts().read_bytes, 0u);
}

TEST_F(SpilledRequestsTest, AFullDiskEndsTheOneThatNeedsIt) {
  std::vector<Asked> expected = {{600}, {30}}, found = expected;
  Run(*Load(false), expected);
  const std::unique_ptr<Engine> engine = Load(true);
  disk_.is_full = true;
  Run(*engine, found);
  ASSERT_TRUE(found[0].outcome.error);
  EXPECT_STREQ(found[0].outcome.error->what(),
               ("kv cache: spilling a page to a file in " + testing::TempDir() +
                " failed: No space left on device")
                   .c_str());
  EXPECT_FALSE(found[1].outcome.error);
  EXPECT_EQ(found[1].outcome.generated, expected[1].outcome.generated);
  // There is room again.
  disk_.is_full = false;
  found = {{600}, {30}};
  Run(*engine, found);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].outcome.generated, expected[i].outcome.generated);
  }
}

TEST_F(SpilledRequestsTest, AFailedReadEndsTheOneThatNeedsIt) {
  std::vector<Asked> expected = {{600}, {30}, {600}}, found = expected;
  Run(*Load(false), expected);
  disk_.reads = {{.kind = FaultKind::kError, .nth_read = 40}};
  const std::unique_ptr<Engine> engine = Load(true);
  Run(*engine, found);
  int failed = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!found[i].outcome.error) {
      EXPECT_EQ(found[i].outcome.generated, expected[i].outcome.generated);
      continue;
    }
    ++failed;
    EXPECT_EQ(found[i].outcome.error->code(), ErrorCode::kIo);
    EXPECT_NE(std::string(found[i].outcome.error->what()).find("reading spilled pages from a file"),
              std::string::npos);
    EXPECT_EQ(expected[i].prompt, 600);
  }
  EXPECT_EQ(failed, 1);
}

TEST_F(SpilledRequestsTest, SavedSessionsThatAreLongerThanMemoryComeBack) {
  const std::string folder = testing::TempDir() + "spilled_sessions";
  std::filesystem::remove_all(folder);
  std::vector<Asked> first = {{500, 1}}, expected = {{580, 1}}, found = expected;
  Run(*Load(false), expected);
  for (int round = 0; round < 2; ++round) {
    const std::unique_ptr<Engine> engine = Load(true);
    const auto sessions = OpenSessions(*engine, {.folder = folder});
    BatchScheduler scheduler(*engine, {.most_running = kContexts}, sessions.get());
    Asked& asked = round == 0 ? first[0] : found[0];
    Add(scheduler, asked);
    while (!scheduler.is_idle()) scheduler.Step();
    EXPECT_FALSE(asked.outcome.error);
    EXPECT_GT(engine->kv_pool().flash()->counts().written_bytes, 0u);
    EXPECT_EQ(scheduler.SaveSessions(std::chrono::steady_clock::now() + std::chrono::seconds(20)),
              0);
  }
  std::filesystem::remove_all(folder);
  EXPECT_GE(found[0].outcome.reused_tokens, 500 - 1);
  EXPECT_EQ(found[0].outcome.generated, expected[0].outcome.generated);
}

TEST_F(SpilledRequestsTest, TooLittleMemoryIsRefusedWithTheLeastThatWouldDo) {
  EngineOptions options = SpilledModel::Options(KvCodec::kF16);
  options.kv_memory_bytes = 1000;
  std::string words;
  try {
    Engine::Load(model_.path(), options);
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.field(), "kv_memory");
    words = error.expected();
  }
  ASSERT_EQ(words.rfind("at least ", 0), 0u) << words;
  options.kv_memory_bytes = std::stoull(words.substr(9)) << 20;
  EXPECT_NO_THROW(Engine::Load(model_.path(), options));
  // A folder that is not there.
  options = SpilledModel::Spilling(SpilledModel::Options(KvCodec::kF16),
                                   Engine::Load(model_.path(), options)->kv_pool().layout());
  options.kv_folder = testing::TempDir() + "no such folder";
  EXPECT_THROW(Engine::Load(model_.path(), options), Error);
}

// Nobody said how much memory keys and values may take: what the limit leaves beside the weights.
TEST_F(SpilledRequestsTest, ALimitThatHoldsTheWeightsSpillsRatherThanStreams) {
  EngineOptions options = SpilledModel::Options(KvCodec::kF32);
  options.kv_sequences = 1;
  options.kv_folder = testing::TempDir();
  const std::unique_ptr<Engine> whole = Engine::Load(model_.path(), options);
  options.memory_bytes = whole->budget().used_bytes() + (uint64_t{2} << 20);
  EXPECT_EQ(Engine::Load(model_.path(), options)->kv_pool().flash(), nullptr);
  options.memory_bytes = whole->budget().used_bytes() - whole->kv_pool().layout().page_bytes();
  const std::unique_ptr<Engine> spilled = Engine::Load(model_.path(), options);
  ASSERT_NE(spilled->kv_pool().flash(), nullptr);
  EXPECT_FALSE(spilled->is_streamed());
  EXPECT_LE(spilled->budget().used_bytes(), *options.memory_bytes);
  EXPECT_EQ(spilled->context(), kContext);
}

}  // namespace
}  // namespace hearth
