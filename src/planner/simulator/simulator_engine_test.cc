// The simulator held against the engine: the same lists on the same emulated device take the same
// time, within 15%. The engine runs in virtual time, which stands still while it computes, so that
// the simulated cores compute in no time too.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "measure/topic_walk.h"
#include "pass/test_passes.h"
#include "planner/cost/test_planned_model.h"
#include "planner/simulator/simulator.h"
#include "planner/simulator/test_simulator.h"
#include "storage/test_clock.h"

namespace hearth {
namespace {

constexpr FfnMode kSimulatedMode = FfnMode::kPredicted;
constexpr int kFilling = 16, kMeasured = 32;
constexpr double kSimTolerance = 0.15;
// Of 4 * 6144 neurons; spare slots for the longest list.
constexpr int64_t kSlots = 6000;
constexpr StreamPlan kHalfOutside = {
    .cache_slots = kSlots, .range_neurons = 1024, .range_buffers = 3, .queue_depth = 32};

// A drive with two queues of commands and a latency, unlike the phone's.
DeviceProfile SlowDrive() {
  DeviceProfile flash;
  flash.name = "slow drive";
  flash.random = {{512, 10e6}, {65536, 400e6}};
  flash.latency_seconds = 80e-6;
  flash.command_queues = 2;
  return flash;
}

class SimulatorEngineTest : public PlannedModelTest {
 protected:
  static std::vector<TokenId> Tokens() {
    const auto topics = TopicMap::FromMetadata(GgufFile::Open(Model()).metadata(), 2000);
    return TopicWalk(*topics).Take(kFilling + kMeasured);
  }

  // Seconds of a token, as the engine takes them.
  static double Run(const DeviceProfile& flash, PipelineKind pipeline, bool gates_first) {
    const FakeClock clock;
    EngineOptions options = Options(kSimulatedMode);
    options.threads = 1;
    options.memory_bytes = Memory(kSimulatedMode, 20);
    options.neurons = kHalfOutside;
    options.streaming.device = EmulatedDevice{flash, 0, &clock};
    StreamOptions& how = options.streaming.pipeline;
    how.pipeline = pipeline;
    how.gates_first = gates_first;
    how.lookahead = Lookahead::kOff;
    how.merge_gap_bytes.reset();
    how.processors.run_delay = [] { return std::optional<double>(); };
    const auto engine = Engine::Load(Model(), options);
    KvSequence kv(engine->kv_pool());
    int64_t begin_ns = 0;
    const std::vector<TokenId> tokens = Tokens();
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i == kFilling) begin_ns = clock.NowNs();
      const BatchSequence one{&kv, std::span(tokens).subspan(i, 1)};
      engine->pass().Run(ShapeOf(one), engine->selector());
    }
    return 1e-9 * static_cast<double>(clock.NowNs() - begin_ns) / kMeasured;
  }

  static double Simulated(const DeviceProfile& flash, SimPipeline pipeline, bool gates_first) {
    const AccessRecord accesses = *ReadAccessRecord(Stem(kSimulatedMode), Hash(), kSimulatedMode);
    const GgufFile file = GgufFile::Open(Model());
    const BundleLayout layout = ReadBundleLayout(file.metadata(), 512, 1536);
    SimModel model;
    model.name = "planned";
    model.num_layers = accesses.lists.num_layers;
    model.neurons = accesses.lists.num_neurons;
    model.hidden_size = 512;
    model.slot_bytes = model.bundle_bytes = layout.stride;
    model.gate_read_bytes = layout.split;
    SimDevice device = FlatDevice(1e17, 1e9, 1);
    device.flash = flash;
    if (device.flash.core_seconds.empty()) device.flash.core_seconds = {0};
    SimOptions options;
    options.strategy = {
        .pipeline = pipeline, .gates_first = gates_first, .queue_depth = kHalfOutside.queue_depth};
    options.cache_bytes = kSlots * model.slot_bytes;
    options.warmup_tokens = kFilling;
    options.tokens = kMeasured;
    options.gate_fires = accesses.activity.up / accesses.activity.gate;
    RecordedAccesses lists(model, accesses.lists);
    return Simulate(device, model, options, lists).mean_seconds();
  }
};

TEST_F(SimulatorEngineTest, ReadsTakeAsLongAsInTheEngine) {
  for (const DeviceProfile& flash : {SlowDrive(), Ufs40()}) {
    for (const auto& [pipeline, simulated, gates_first] :
         {std::tuple(PipelineKind::kCluster, SimPipeline::kCluster, false),
          std::tuple(PipelineKind::kCluster, SimPipeline::kCluster, true),
          std::tuple(PipelineKind::kMatrix, SimPipeline::kMatrix, false),
          std::tuple(PipelineKind::kBlocking, SimPipeline::kBlocking, false),
          std::tuple(PipelineKind::kLlmFlash, SimPipeline::kLlmFlash, false)}) {
      const double engine = Run(flash, pipeline, gates_first);
      const double simulator = Simulated(flash, simulated, gates_first);
      EXPECT_GT(engine, 1e-4);
      EXPECT_NEAR(simulator / engine, 1, kSimTolerance)
          << flash.name << ", " << PipelineName(pipeline) << (gates_first ? ", gates first" : "")
          << ": " << 1e3 * engine << " ms";
    }
  }
}

}  // namespace
}  // namespace hearth
