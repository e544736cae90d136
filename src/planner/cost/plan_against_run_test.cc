// Plans held against what engines then do: the time that they read for, on an emulated device in
// virtual time, and the bytes that they multiply. Whatever scales a plan by two fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "engine/load/obey_plan.h"
#include "measure/topic_walk.h"
#include "pass/test_passes.h"
#include "planner/cost/test_emulated_hardware.h"
#include "planner/cost/test_planned_model.h"
#include "storage/async/throttled_file.h"
#include "storage/test_clock.h"

namespace hearth {
namespace {

constexpr FfnMode kMode = FfnMode::kPredicted;
// A cache that is warmed by other tokens than the replay's misses a little more or less.
constexpr double kTolerance = 0.25;
// As the planner takes them from the record: those that fill the cache, and those that count.
constexpr int kWarmUp = 24, kCounted = 72;
constexpr double kBytesPerSecond = 1e10;

// Virtual time stands still while anything is computed.
DeviceProfile SlowFlash() {
  DeviceProfile flash;
  flash.name = "slow flash";
  flash.random = {{1024, 20e6}, {65536, 400e6}, {1 << 20, 800e6}};
  flash.latency_seconds = 50e-6;
  flash.latency_per_byte = 1e-9;
  return flash;
}

HardwareProfile WithSlowFlash() { return testing::ComputesInNoTime(SlowFlash()); }

class PlanAgainstRunTest : public PlannedModelTest {
 protected:
  static AccessRecord Accesses() {
    AccessRecord accesses = *ReadAccessRecord(Stem(kMode), Hash(), kMode);
    accesses.guesses.reset();  // nothing is read while nothing is waited for
    return accesses;
  }

  // Decodes as many of the tokens that were recorded: how much a plan differs for other tokens is a
  // matter of the text, not of the costs that are held to account here.
  static void Decode(Engine& engine, KvSequence& kv, int count) {
    const auto topics = TopicMap::FromMetadata(engine.model().metadata(), 2000);
    const std::vector<TokenId> tokens = TopicWalk(*topics).Take(kWarmUp + kCounted);
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(kv.length());
      const BatchSequence one{&kv, std::span(tokens).subspan(at, 1)};
      engine.pass().Run(ShapeOf(one), engine.selector());
      engine.pass().Logits(0, 1);
    }
  }
};

TEST_F(PlanAgainstRunTest, ReadingTakesAsLongAsPlanned) {
  const AccessRecord accesses = Accesses();
  const HardwareProfile hardware = WithSlowFlash();
  for (const uint64_t percent : {20, 45}) {
    PlanRequest request = Request(kMode, Memory(kMode, percent));
    request.engine.streaming.pipeline.merge_gap_bytes.reset();
    request.cores = {0};
    const ExecutionPlan plan = MakePlan(request, hardware, &accesses).plan;
    ASSERT_EQ(plan.bound, "flash");

    const FakeClock clock;
    EngineOptions options = OptionsOfPlan(plan, Hash(), hardware.MachineHash());
    options.program_bytes = kProgram;
    options.streaming.device = EmulatedDevice{SlowFlash(), 0, &clock};
    options.streaming.pipeline.lookahead = Lookahead::kOff;
    options.streaming.pipeline.merge_gap_bytes.reset();
    const auto engine = Engine::Load(Model(), options);
    KvSequence kv(engine->kv_pool());
    Decode(*engine, kv, kWarmUp);
    const int64_t begin_ns = clock.NowNs();
    Decode(*engine, kv, kCounted);
    const double ms = static_cast<double>(clock.NowNs() - begin_ns) / 1e6 / kCounted;
    EXPECT_NEAR(plan.time.token_ms / ms, 1, kTolerance) << percent << "% outside: " << ms << " ms";
    EXPECT_NEAR(plan.time.io_ms / ms, 1, kTolerance) << percent << "% outside";
  }
}

// Where all is in memory a token takes as long as its weights need to come from there.
TEST_F(PlanAgainstRunTest, ComputingTakesAsLongAsWhatIsMultiplied) {
  const AccessRecord accesses = Accesses();
  HardwareProfile hardware = testing::SampleHardware();
  for (ThreadSpeed& speed : hardware.threads) {
    for (Spread ThreadSpeed::*rate :
         {&ThreadSpeed::read_bytes_per_s, &ThreadSpeed::matrix_bytes_per_s,
          &ThreadSpeed::dot_bytes_per_s, &ThreadSpeed::add_bytes_per_s,
          &ThreadSpeed::narrow_dot_bytes_per_s, &ThreadSpeed::narrow_add_bytes_per_s}) {
      (speed.*rate).median = kBytesPerSecond;
    }
    speed.section_seconds.median = 0;
  }
  PlanRequest request = Request(kMode, Resident(kMode) + (uint64_t{1} << 20));
  request.cores = {0};
  const ExecutionPlan plan = MakePlan(request, hardware, &accesses).plan;
  ASSERT_EQ(plan.io_strategy, "none");

  const auto engine = Engine::Load(Model(), Options(kMode));
  KvSequence kv(engine->kv_pool());
  Decode(*engine, kv, kCounted);
  const SparseFfnCounts counts = engine->pass().ffn_counts();
  const LayerWeights& layer = engine->model().weights().main_layer();
  const double neuron_bytes = static_cast<double>(layer.gate_rows.row_bytes()) *
                              static_cast<double>(counts.gate + counts.up + counts.active) /
                              kCounted;
  const auto planned_bytes = [](double ms) { return ms / 1000 * kBytesPerSecond; };
  EXPECT_NEAR(planned_bytes(plan.time.ffn_ms) / neuron_bytes, 1, kTolerance);

  // A row takes as much longer as narrow rows show, by how narrow it is.
  for (ThreadSpeed& speed : hardware.threads) {
    speed.narrow_dot_bytes_per_s.median = speed.narrow_add_bytes_per_s.median = kBytesPerSecond / 3;
  }
  const ExecutionPlan slower = MakePlan(request, hardware, &accesses).plan;
  const double rows = static_cast<double>(counts.gate + counts.up + counts.active) / kCounted;
  const double more_bytes = 2 * static_cast<double>(RowBytes(DType::kQ4_0, kNarrowColumns)) *
                            static_cast<double>(kRowColumns - layer.gate_rows.cols) /
                            static_cast<double>(kRowColumns - kNarrowColumns);
  EXPECT_NEAR(planned_bytes(slower.time.ffn_ms - plan.time.ffn_ms) / (rows * more_bytes), 1,
              kTolerance);

  // What is not FFN and not the table of embeddings, of which a token needs a row.
  double others = 0, predictors = 0;
  const GgufFile file = GgufFile::Open(Model());
  for (const GgufTensor& tensor : file.tensors()) {
    const bool is_predictor = tensor.name.find("predictor") != std::string::npos;
    const bool is_ffn = tensor.name.find(".ffn_") != std::string::npos;
    if (is_predictor) predictors += static_cast<double>(tensor.bytes);
    if (is_predictor || is_ffn || tensor.name == "token_embd.weight") continue;
    others += static_cast<double>(tensor.bytes);
  }
  EXPECT_NEAR(planned_bytes(plan.time.predictor_ms) / predictors, 1, kTolerance);
  EXPECT_NEAR(planned_bytes(plan.time.attention_ms) / others, 1, kTolerance);
  EXPECT_DOUBLE_EQ(plan.time.token_ms,
                   plan.time.attention_ms + plan.time.predictor_ms + plan.time.ffn_ms);
}

}  // namespace
}  // namespace hearth
