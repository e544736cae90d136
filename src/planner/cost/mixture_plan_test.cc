// A mixture that is not packed, from recorded experts to plans that engines obey.
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "engine/load/obey_plan.h"
#include "format/packed_file.h"
#include "planner/cost/miss_replay.h"
#include "planner/cost/planner.h"
#include "planner/doctor/test_hardware.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

constexpr uint64_t kMixtureProgramBytes = uint64_t{8} << 20;
constexpr int64_t kMixtureLayers = 3, kMixtureExperts = 16, kMixtureChosen = 2, kMixtureTokens = 40;

class MixturePlanTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("mixture_plan_test");
    SynthesizeModel(ParseShape(R"({"arch": "qwen3moe", "hidden_size": 256, "num_experts": 16,
                                   "intermediate_size": 1024, "num_layers": 3, "num_heads": 4,
                                   "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600,
                                   "num_experts_per_token": 2})",
                               "mixture"),
                    {.quant = DType::kQ4_0, .threads = 2}, Model());
    // Of the model in memory, and of a part of it: what is recorded is the same.
    RecordAccesses(*Engine::Load(Model(), Options()), Hash(), Tokens(), Stem(), {});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string Model() { return folder_->Path("model.gguf"); }
  static std::string Stem() { return folder_->Path("accesses"); }
  static uint64_t Hash() { return ModelHash(GgufFile::Open(Model())); }
  static AccessRecord Record() { return *ReadAccessRecord(Stem(), Hash(), FfnMode::kDense); }
  static EngineOptions Options(std::optional<uint64_t> memory_bytes = {}) {
    return {.memory_bytes = memory_bytes,
            .program_bytes = kMixtureProgramBytes,
            .threads = 2,
            .context = kMixtureTokens,
            .batch_tokens = 16};
  }
  static std::vector<TokenId> Tokens() {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < kMixtureTokens; ++i) tokens.push_back(100 + 37 * i % 400);
    return tokens;
  }
  static uint64_t Resident() {
    return PlanEngine(GgufFile::Open(Model()), Options()).needed_bytes();
  }
  // With this share of the experts outside.
  static uint64_t Memory(uint64_t percent_outside) {
    constexpr uint64_t kExpertBytes = uint64_t{3} * 256 * 1024 * 18 / 32;
    return Resident() + 100000 -
           kMixtureLayers * kMixtureExperts * kExpertBytes * percent_outside / 100;
  }
  static PlanRequest Request(std::optional<uint64_t> memory_bytes) {
    return {.model = Model(), .engine = Options(memory_bytes), .cores = {0, 1}, .least_tok_s = {}};
  }

  static TestFolder* folder_;
};

TestFolder* MixturePlanTest::folder_ = nullptr;

TEST_F(MixturePlanTest, RecordsTheExpertsOfEveryToken) {
  const AccessRecord record = Record();
  EXPECT_EQ(record.tokens, kMixtureTokens);
  EXPECT_EQ(record.lists.unit, AccessUnit::kExperts);
  ASSERT_EQ(record.lists.num_batches(), kMixtureTokens * kMixtureLayers);
  EXPECT_EQ(record.lists.num_accesses(), kMixtureTokens * kMixtureLayers * kMixtureChosen);
  for (int64_t i = 0; i < record.lists.num_batches(); ++i) {
    for (const int32_t key : record.lists.batch(i))
      EXPECT_EQ(key / kMixtureExperts, i % kMixtureLayers);
    EXPECT_EQ(record.lists.ends_pass(i), i % kMixtureLayers == kMixtureLayers - 1);
  }
  const std::string streamed = folder_->Path("streamed");
  RecordAccesses(*Engine::Load(Model(), Options(Memory(50))), Hash(), Tokens(), streamed, {});
  EXPECT_EQ(folder_->Bytes("streamed.route.csv"), folder_->Bytes("accesses.route.csv"));
}

TEST_F(MixturePlanTest, WhatIsReplayedIsWhatAnEngineReads) {
  for (const uint64_t percent : {30, 60, 80}) {
    const auto engine = Engine::Load(Model(), Options(Memory(percent)));
    const StreamedMatrices* streamed = engine->streamed_matrices();
    ASSERT_NE(streamed, nullptr);
    const MissReplay replay =
        ReplayExperts(Record().lists, streamed->map(), streamed->plan(), streamed->policy(), 0);
    KvSequence kv(engine->kv_pool());
    for (const TokenId token : Tokens()) {
      const BatchSequence one{&kv, {&token, 1}};
      engine->pass().Run({PassKind::kDecode, {&one, 1}}, engine->selector());
    }
    const StreamCounts counts = engine->stream_counts();
    EXPECT_EQ(replay.tokens, kMixtureTokens);
    EXPECT_EQ(replay.listed_per_token() * kMixtureTokens, static_cast<double>(counts.neurons))
        << percent;
    EXPECT_GT(counts.misses, 0);
    EXPECT_NEAR(replay.misses_per_token() * kMixtureTokens, static_cast<double>(counts.misses),
                0.02 * static_cast<double>(counts.misses))
        << percent;
  }
}

TEST_F(MixturePlanTest, PlansAreObeyedAndMoreMemoryIsNeverSlower) {
  const AccessRecord record = Record();
  double last = 0;
  for (const uint64_t percent : {80, 50, 20, 0}) {
    const uint64_t memory = Memory(percent);
    const ExecutionPlan plan = MakePlan(Request(memory), testing::SampleHardware(), &record).plan;
    EXPECT_LE(plan.ledger_bytes(), memory);
    EXPECT_EQ(plan.io_strategy, percent > 0 ? "experts" : "none") << percent;
    EXPECT_EQ(plan.miss_rate > 0, percent > 0) << percent;
    EXPECT_GE(plan.decode_tok_s, last * 0.999) << percent;
    last = plan.decode_tok_s;
    const ExecutionPlan read = PlanFromJson(PlanJson(plan), "plan");
    EngineOptions options = OptionsOfPlan(read, Hash(), testing::SampleHardware().MachineHash());
    options.program_bytes = kMixtureProgramBytes;
    options.batch_tokens = 16;
    const auto engine = Engine::Load(Model(), options);
    EXPECT_EQ(engine->streamed_matrices() != nullptr, percent > 0) << percent;
    EXPECT_LE(engine->budget().used_bytes(), memory);
  }
}

TEST_F(MixturePlanTest, WhereStorageSuffersFromComputingTokensTakeLonger) {
  const AccessRecord record = Record();
  HardwareProfile hardware = testing::SampleHardware();
  const auto token_ms = [&](double share) {
    for (ThreadSpeed& speed : hardware.threads) {
      speed.busy_io_bytes_per_s.median =
          share * hardware.IoBytesPerSecond(kBusyBlockBytes, kBusyQueueDepth);
    }
    return 1000 / MakePlan(Request(Memory(80)), hardware, &record).plan.decode_tok_s;
  };
  const double free = token_ms(1), half = token_ms(0.5), none = token_ms(1e-6);
  EXPECT_GT(half, free);
  EXPECT_GT(none, half);
  EXPECT_EQ(token_ms(2), free);
  // Nothing is read while they compute, at the worst, and half as much in between: what half of it
  // costs is half of that.
  EXPECT_NEAR(half - free, (none - free) / 2, 0.02 * (none - free));
}

TEST_F(MixturePlanTest, ARecordIsAskedForWhereItMatters) {
  const GgufFile file = GgufFile::Open(Model());
  EXPECT_EQ(RecordedModeOf(file, Request(Memory(50))), FfnMode::kDense);
  EXPECT_EQ(RecordedModeOf(file, Request(Memory(0))), std::nullopt);
  PlanRequest fast = Request(Memory(0));
  fast.least_tok_s = 1;
  EXPECT_EQ(RecordedModeOf(file, fast), FfnMode::kDense);
  EXPECT_THROW(MakePlan(Request(Memory(50)), testing::SampleHardware(), nullptr), Error);
  EXPECT_EQ(MakePlan(Request(Memory(0)), testing::SampleHardware(), nullptr).plan.io_strategy,
            "none");
  AccessRecord other = Record();
  other.lists.num_experts = 8;
  EXPECT_THROW(MakePlan(Request(Memory(50)), testing::SampleHardware(), &other), Error);
}

}  // namespace
}  // namespace hearth
