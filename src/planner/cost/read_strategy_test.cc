// Plans choose the fastest way of reading. An emulated phone runs every strategy in virtual time,
// with bundles of three sizes, and the plan's strategy must be the fastest (P2 §4.3).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/test_folder.h"
#include "engine/load/obey_plan.h"
#include "measure/topic_walk.h"
#include "pass/test_passes.h"
#include "planner/cost/test_emulated_hardware.h"
#include "planner/cost/test_planned_model.h"
#include "storage/test_clock.h"

namespace hearth {
namespace {

constexpr FfnMode kReadMode = FfnMode::kPredicted;
constexpr int kReadTokens = 32, kReadBefore = 12;
constexpr double kSameSpeed = 1.02;  // within this factor, two strategies count as equally fast

class ReadStrategyTest : public ::testing::TestWithParam<int> {
 protected:
  ReadStrategyTest() : folder_("read_strategy_test") {
    const int hidden = GetParam();
    const ModelShape shape =
        ParseShape(R"({"hidden_size": )" + std::to_string(hidden) + R"(, "intermediate_size": )" +
                       std::to_string(hidden == 512 ? 1536 : 768) +
                       R"(, "num_layers": 2, "num_heads": 8, "num_kv_heads": 2,
                "head_dim": 64, "vocab_size": 600, "activation": "drelu"})",
                   "sparse");
    SynthesizeModel(shape, {.threads = 2, .planted = PlantedOptions{}, .packed = true}, Model());
  }
  std::string Model() const { return folder_.Path("model.gguf"); }
  uint64_t Hash() const { return ModelHash(GgufFile::Open(Model())); }
  static EngineOptions Options() {
    return {.program_bytes = kProgram, .threads = 1, .context = 96, .mode = kReadMode};
  }
  std::vector<TokenId> Tokens() const {
    const auto topics = TopicMap::FromMetadata(GgufFile::Open(Model()).metadata(), 600);
    return TopicWalk(*topics).Take(kReadTokens);
  }
  // With half of the neurons outside.
  PlanRequest Request() const {
    PlanRequest request{.model = Model(), .engine = Options(), .cores = {0}};
    const GgufFile file = GgufFile::Open(Model());
    uint64_t bundles = 0;
    for (const GgufTensor& tensor : file.tensors()) {
      if (tensor.name.find("ffn_bundle") != std::string::npos) bundles += tensor.bytes;
    }
    request.engine.memory_bytes = PlanEngine(file, Options()).needed_bytes() - bundles / 2;
    request.engine.streaming.pipeline.lookahead = Lookahead::kOff;
    request.engine.streaming.pipeline.merge_gap_bytes.reset();
    return request;
  }
  AccessRecord Record() const {
    const auto engine = Engine::Load(Model(), Options());
    RecordAccesses(*engine, Hash(), Tokens(), folder_.Path("record"), {});
    AccessRecord record = *ReadAccessRecord(folder_.Path("record"), Hash(), kReadMode);
    record.guesses.reset();
    return record;
  }
  // Milliseconds of a token.
  double Run(EngineOptions options, bool gates_first, bool in_pieces) const {
    const FakeClock clock;
    options.program_bytes = kProgram;
    options.streaming.device = EmulatedDevice{Ufs40(), 0, &clock};
    options.streaming.pipeline.lookahead = Lookahead::kOff;
    options.streaming.pipeline.merge_gap_bytes.reset();
    options.streaming.pipeline.gates_first = gates_first;
    options.streaming.pipeline.piece_bytes = in_pieces ? kNeuronPieceBytes : 0;
    options.streaming.pipeline.processors.run_delay = [] { return std::optional<double>(); };
    const auto engine = Engine::Load(Model(), options);
    KvSequence kv(engine->kv_pool());
    const std::vector<TokenId> tokens = Tokens();
    int64_t begin_ns = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i == kReadBefore) begin_ns = clock.NowNs();
      const BatchSequence one{&kv, std::span(tokens).subspan(i, 1)};
      engine->pass().Run(ShapeOf(one), engine->selector());
    }
    return static_cast<double>(clock.NowNs() - begin_ns) / 1e6 / (kReadTokens - kReadBefore);
  }

  const TestFolder folder_;
};

TEST_P(ReadStrategyTest, ThePlansIsTheFastest) {
  const HardwareProfile hardware = testing::ComputesInNoTime(Ufs40());
  const AccessRecord record = Record();
  const ExecutionPlan plan = MakePlan(Request(), hardware, &record).plan;
  const EngineOptions options = OptionsOfPlan(plan, Hash(), hardware.MachineHash());
  const std::map<std::string, double> ms = {{"whole", Run(options, false, false)},
                                            {"halves", Run(options, true, false)},
                                            {"pieces", Run(options, false, true)},
                                            {"halves-in-pieces", Run(options, true, true)}};
  ASSERT_EQ(ms.count(plan.io_strategy), 1u) << plan.io_strategy;
  for (const auto& [strategy, of_strategy] : ms) {
    EXPECT_LE(ms.at(plan.io_strategy), of_strategy * kSameSpeed)
        << "the plan says " << plan.io_strategy << ", faster is " << strategy;
  }
}

TEST_P(ReadStrategyTest, EnginesObeyIt) {
  const HardwareProfile hardware = testing::ComputesInNoTime(Ufs40());
  const AccessRecord record = Record();
  ExecutionPlan plan = MakePlan(Request(), hardware, &record).plan;
  EXPECT_EQ(plan.stream->clusters, (ClusterSizes{8, 256})) << "nothing takes time to compute";
  plan.stream->clusters = {24, 48};
  for (const auto& [strategy, gates_first, piece_bytes] :
       {std::tuple("whole", false, 0u), std::tuple("halves", true, 0u),
        std::tuple("pieces", false, kNeuronPieceBytes),
        std::tuple("halves-in-pieces", true, kNeuronPieceBytes)}) {
    plan.io_strategy = strategy;
    const EngineOptions options = OptionsOfPlan(plan, Hash(), hardware.MachineHash());
    EXPECT_EQ(options.streaming.pipeline.gates_first, gates_first) << strategy;
    EXPECT_EQ(options.streaming.pipeline.piece_bytes, piece_bytes) << strategy;
    EXPECT_EQ(options.neurons->clusters, (ClusterSizes{24, 48}));
  }
}

INSTANTIATE_TEST_SUITE_P(Bundles, ReadStrategyTest, ::testing::Values(512, 2048, 4096));

}  // namespace
}  // namespace hearth
