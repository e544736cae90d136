#include "planner/simulator/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random_words.h"
#include "base/rounding.h"
#include "planner/simulator/simulator_plot.h"
#include "planner/simulator/test_simulator.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr double kShareListed = 0.1;

SimResult RunSynthetic(const SimDevice& device, const SimModel& model, SimOptions options,
                       uint64_t seed = 1) {
  options.tokens = 20;
  options.warmup_tokens = 5;
  options.seed = seed;
  SyntheticAccesses accesses(model, {.active = kShareListed, .seed = seed}, nullptr);
  return Simulate(device, model, options, accesses);
}

SimOptions With(SimPipeline pipeline, std::optional<uint64_t> cache_bytes, double gate_fires = 1) {
  SimOptions options;
  options.strategy = {.system = SimSystem::kPowerInfer2, .pipeline = pipeline};
  options.warm_start = false;
  options.cache_bytes = cache_bytes;
  options.gate_fires = gate_fires;
  return options;
}

std::string SimErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// ---- limits with known answers ----

TEST(SimulatorTest, EverythingInMemoryIsBoundByComputing) {
  const SimModel model = SmallSimModel();
  const SimDevice device = FlatDevice(1e9, 1e6);
  SimOptions options = With(SimPipeline::kCluster, std::nullopt);
  options.strategy.cluster_neurons = 1;
  const SimResult result = RunSynthetic(device, model, options);
  const double ffn_macs =
      result.listed_per_token() * static_cast<double>(model.matrices * model.hidden_size);
  EXPECT_NEAR(result.compute_seconds, ffn_macs / 4e9, 1e-3 * result.compute_seconds);
  const double dense_macs = model.output_macs + static_cast<double>(model.num_layers) *
                                                    (model.attention_macs + model.predictor_macs);
  EXPECT_NEAR(result.dense_seconds, dense_macs / 4e9, 1e-6);
  EXPECT_NEAR(result.mean_seconds(), result.dense_seconds + result.compute_seconds,
              0.01 * result.mean_seconds());
  EXPECT_EQ(result.bytes_per_token, 0);
  EXPECT_EQ(result.mean_miss_rate(), 0);
}

TEST(SimulatorTest, SlowMemoryBoundsComputingToo) {
  const SimModel model = SmallSimModel();
  SimDevice device = FlatDevice(1e12, 1e6);
  device.memory_bytes_per_s = 1e9;
  const SimResult result = RunSynthetic(device, model, With(SimPipeline::kCluster, std::nullopt));
  const double ffn_macs =
      result.listed_per_token() * static_cast<double>(model.matrices * model.hidden_size);
  EXPECT_NEAR(result.compute_seconds, ffn_macs * kSimWeightBytes / 1e9,
              1e-3 * result.compute_seconds);
}

TEST(SimulatorTest, NoCacheIsBoundByReads) {
  const SimModel model = SmallSimModel();
  const double rate = 1e8;
  for (const SimPipeline pipeline :
       {SimPipeline::kCluster, SimPipeline::kMatrix, SimPipeline::kBlocking}) {
    SCOPED_TRACE(SimPipelineName(pipeline));
    const SimResult result = RunSynthetic(FlatDevice(1e12, rate), model, With(pipeline, 0));
    EXPECT_EQ(result.mean_miss_rate(), 1);
    EXPECT_NEAR(result.mean_seconds(), result.bytes_per_token / rate, 0.01 * result.mean_seconds());
  }
}

TEST(SimulatorTest, BytesReadAreMissesTimesBundles) {
  const SimModel model = SmallSimModel();
  for (const uint64_t cache : {uint64_t{0}, model.slots_bytes() / 10, model.slots_bytes() / 2}) {
    for (const SimPipeline pipeline : {SimPipeline::kCluster, SimPipeline::kMatrix,
                                       SimPipeline::kBlocking, SimPipeline::kLlmFlash}) {
      SCOPED_TRACE(SimPipelineName(pipeline));
      const SimResult result = RunSynthetic(FlatDevice(1e9, 1e8), model, With(pipeline, cache));
      double missed = 0;
      for (const SimToken& token : result.tokens) missed += static_cast<double>(token.missed);
      missed /= static_cast<double>(result.tokens.size());
      EXPECT_DOUBLE_EQ(result.bytes_per_token, missed * static_cast<double>(model.bundle_bytes));
      EXPECT_DOUBLE_EQ(result.reads_per_token,
                       missed * (pipeline == SimPipeline::kLlmFlash ? 1 : 2));
    }
  }
}

TEST(SimulatorTest, SecondReadsAreOnlyOfGatesThatFire) {
  const SimModel model = SmallSimModel();
  const SimDevice device = FlatDevice(1e9, 1e8);
  const SimResult none = RunSynthetic(device, model, With(SimPipeline::kCluster, 0, 0));
  EXPECT_DOUBLE_EQ(none.bytes_per_token, 4096 * none.listed_per_token());
  const SimResult most = RunSynthetic(device, model, With(SimPipeline::kCluster, 0, 0.8));
  EXPECT_NEAR(most.reads_per_token, 1.8 * most.listed_per_token(), 0.02 * most.listed_per_token());
  const SimResult matrix = RunSynthetic(device, model, With(SimPipeline::kMatrix, 0, 0.8));
  EXPECT_EQ(most.bytes_per_token, matrix.bytes_per_token);
}

TEST(SimulatorTest, OverlapTakesTheLongerOfComputingAndReading) {
  const SimModel model = SmallSimModel();
  RandomWords random(7);
  for (int i = 0; i < 12; ++i) {
    const double macs = 1e8 * (1 + 20 * random.NextUnit());
    const double rate = 1e7 * (1 + 20 * random.NextUnit());
    SimOptions options = With(SimPipeline::kCluster, model.slots_bytes() / 20);
    options.policy = CachePolicyKind::kLru;
    options.strategy.cluster_neurons = 4;
    const SimResult result = RunSynthetic(FlatDevice(macs, rate), model, options);
    const double io = result.bytes_per_token / rate;
    const double longer = std::max(io, result.compute_seconds);
    const double ffn = result.compute_seconds + result.wait_seconds;
    EXPECT_GE(ffn, longer * (1 - 1e-6));
    EXPECT_LE(ffn, longer * 1.1) << io << " " << result.compute_seconds;
  }
}

TEST(SimulatorTest, BlockingIsNoFasterThanMatrixAndMatrixThanCluster) {
  const SimModel model = SmallSimModel(4, 2);
  RandomWords random(8);
  for (int i = 0; i < 12; ++i) {
    SimDevice device =
        FlatDevice(1e8 * (1 + 20 * random.NextUnit()), 1e7 * (1 + 20 * random.NextUnit()),
                   1 + static_cast<int>(random.NextBelow(4)));
    const double gate_fires = random.NextUnit();
    const auto cache =
        static_cast<uint64_t>(random.NextUnit() * static_cast<double>(model.slots_bytes()));
    const auto seconds = [&](SimPipeline pipeline) {
      return RunSynthetic(device, model, With(pipeline, cache, gate_fires)).mean_seconds();
    };
    const double cluster = seconds(SimPipeline::kCluster);
    const double matrix = seconds(SimPipeline::kMatrix);
    // Which core takes which cluster may cost a little, as in any such schedule.
    constexpr double kScheduling = 1.005;
    EXPECT_LE(cluster, matrix * kScheduling);
    EXPECT_LE(matrix, seconds(SimPipeline::kBlocking) * kScheduling);
  }
}

TEST(SimulatorTest, OneMissingNeuronPassesItsStagesInOrder) {
  const SimModel model = SmallSimModel();
  const SimDevice device = FlatDevice(1e9, 1e8);
  DeviceModel flash(device.flash);
  SimFfn ffn(
      device, model, flash,
      {.system = SimSystem::kPowerInfer2, .pipeline = SimPipeline::kCluster, .cluster_neurons = 8});
  const auto read = [](double bytes) { return std::llround(bytes / 1e8 * 1e9); };
  const auto compute = [](double macs) { return std::llround(macs / 1e9 * 1e9); };
  const int64_t alone = ffn.Run({.missing = {{0, true}}}, 1000) - 1000;
  EXPECT_EQ(alone, read(4096) + compute(1024) + read(4096) + compute(2048));
  // Its gate does not fire: two stages.
  EXPECT_EQ(ffn.Run({.missing = {{0, false}}}, 10'000'000) - 10'000'000,
            read(4096) + compute(1024));
  // Resident ones, on 4 cores at once, are done before its first read is.
  EXPECT_EQ(ffn.Run({.resident = 32, .resident_goes_on = 32, .missing = {{0, true}}}, 20'000'000) -
                20'000'000,
            std::max<int64_t>(alone, compute(8 * 1024) + compute(8 * 2048)));
  EXPECT_EQ(ffn.Run({}, 30'000'000), 30'000'000);
}

TEST(SimulatorTest, MappedFilesReadAllOfAnFfn) {
  const SimModel model = SmallSimModel(4, 2);
  const SimDevice device = FlatDevice(1e9, 1e8);
  const SimResult none = RunSynthetic(device, model, With(SimPipeline::kMmap, 0));
  const uint64_t ffn = static_cast<uint64_t>(model.neurons) * model.neuron_bytes;
  const uint64_t read = RoundUp(ffn, device.mmap_block_bytes);
  EXPECT_DOUBLE_EQ(none.bytes_per_token, static_cast<double>(4 * 2 * read));
  EXPECT_EQ(RunSynthetic(device, model, With(SimPipeline::kMmap, std::nullopt)).bytes_per_token, 0);
  // A dense model passes all its pages for every token: with room for half, LRU has none of them.
  const SimModel dense = SmallSimModel();
  const SimResult half = RunSynthetic(
      device, dense, With(SimPipeline::kMmap, SimFfnBytes(dense, SimPipeline::kMmap) / 2));
  EXPECT_EQ(half.mean_miss_rate(), 1);
}

TEST(SimulatorTest, MoreMemoryIsNoSlower) {
  const SimModel model = SmallSimModel();
  double last = 1e9;
  for (int tenths = 0; tenths <= 10; ++tenths) {
    const double seconds =
        RunSynthetic(
            FlatDevice(1e10, 1e8), model,
            With(SimPipeline::kCluster, model.slots_bytes() * static_cast<uint64_t>(tenths) / 10))
            .mean_seconds();
    EXPECT_LE(seconds, last * 1.01);
    last = seconds;
  }
}

TEST(SimulatorTest, TheSameSeedGivesTheSameTimes) {
  const SimModel model = SmallSimModel(4, 2);
  const SimOptions options = With(SimPipeline::kCluster, model.slots_bytes() / 4, 0.8);
  const SimDevice device = OnePlus12();
  const SimResult a = RunSynthetic(device, model, options, 3);
  const SimResult b = RunSynthetic(device, model, options, 3);
  const SimResult c = RunSynthetic(device, model, options, 4);
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  bool differs = false;
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].seconds, b.tokens[i].seconds);
    differs = differs || a.tokens[i].seconds != c.tokens[i].seconds;
  }
  EXPECT_TRUE(differs);
  EXPECT_LE(a.QuantileSeconds(0.5), a.QuantileSeconds(0.99));
}

// ---- this engine's strategies ----

SimOptions Ours(SimPipeline pipeline, double gate_fires, bool gates_first = false) {
  SimOptions options = With(pipeline, 0, gate_fires);
  options.strategy.system = SimSystem::kHearth;
  options.strategy.gates_first = gates_first;
  return options;
}

TEST(SimulatorTest, OurBundlesAreThoseOfPackedFiles) {
  const SimModel model = SimModelOf(FindShape("bamboo-7b"), SimSystem::kHearth);
  EXPECT_EQ(model.bundle_bytes, 7168u);
  EXPECT_EQ(model.slot_bytes, 7168u);
  EXPECT_EQ(model.gate_read_bytes, 2560u);
  EXPECT_EQ(model.scale_bytes, 0u);
  EXPECT_GT(SimModelOf(FindShape("bamboo-7b"), SimSystem::kPowerInfer2).scale_bytes, 0u);
}

TEST(SimulatorTest, WeReadBundlesWholeOrGatesFirst) {
  const SimModel model = SmallSimModel();
  const SimDevice device = FlatDevice(1e9, 1e8);
  for (const SimPipeline pipeline :
       {SimPipeline::kCluster, SimPipeline::kBlocking, SimPipeline::kLlmFlash}) {
    const SimResult whole = RunSynthetic(device, model, Ours(pipeline, 0.5));
    EXPECT_DOUBLE_EQ(whole.reads_per_token, whole.listed_per_token()) << SimPipelineName(pipeline);
    EXPECT_DOUBLE_EQ(whole.bytes_per_token, 8192 * whole.listed_per_token());
  }
  for (const auto& [pipeline, gates_first] :
       {std::pair(SimPipeline::kCluster, true), std::pair(SimPipeline::kMatrix, false)}) {
    const SimResult halves = RunSynthetic(device, model, Ours(pipeline, 0.5, gates_first));
    EXPECT_NEAR(halves.reads_per_token, 1.5 * halves.listed_per_token(),
                0.03 * halves.listed_per_token());
    EXPECT_NEAR(halves.bytes_per_token, 6144 * halves.listed_per_token(),
                0.03 * halves.bytes_per_token);
  }
}

// The cache keeps the gate of a silent neuron, and only the rest is read when it fires.
TEST(SimulatorTest, OurCacheKeepsGatesAlone) {
  const SimModel model = SmallSimModel();
  SimOptions options = Ours(SimPipeline::kCluster, 0.5, true);
  options.cache_bytes = model.slots_bytes() - 1;  // for all but one
  const SimResult halves = RunSynthetic(FlatDevice(1e9, 1e8), model, options);
  options.strategy.gates_first = false;
  const SimResult whole = RunSynthetic(FlatDevice(1e9, 1e8), model, options);
  EXPECT_EQ(halves.mean_miss_rate(), whole.mean_miss_rate());
  EXPECT_GT(halves.reads_per_token, 1.2 * whole.reads_per_token);
}

TEST(SimulatorTest, OurQueueHasSoManyPlaces) {
  const SimModel model = SmallSimModel();
  SimDevice device = FlatDevice(1e15, 1e12);
  device.flash.latency_seconds = 1e-3;
  SimOptions options = Ours(SimPipeline::kBlocking, 1);
  for (const int depth : {1, 4}) {
    options.strategy.queue_depth = depth;
    const SimResult result = RunSynthetic(device, model, options);
    const double rounds = result.listed_per_token() / depth;
    EXPECT_NEAR(result.mean_seconds(), 1e-3 * rounds, 0.1e-3 * rounds);
  }
}

TEST(SimulatorTest, OurCoresTakeWhatIsReadyOfSingleNeurons) {
  const SimModel model = SmallSimModel();
  SimDevice device = FlatDevice(1e9, 1e8, 1);
  DeviceModel flash(device.flash);
  SimFfn ffn(device, model, flash, {});
  const auto seconds = [](double value) { return std::llround(value * 1e9); };
  SimFfnWork work = {.resident = 0, .resident_goes_on = 0, .missing = {{0, true}, {8192, true}}};
  // The second arrives while the first is computed, or after it: reads bind, one computes at last.
  EXPECT_EQ(ffn.Run(work, 0), seconds(2 * 8192 / 1e8) + seconds(3 * 1024 / 1e9));
}

TEST(SimulatorTest, CachesBeginWithWhatFiresMost) {
  const SimModel model = SmallSimModel();
  SimOptions options = Ours(SimPipeline::kCluster, 1);
  options.cache_bytes = model.slots_bytes() / 2;
  const auto misses_of_first = [&](bool warm) {
    options.warm_start = warm;
    options.warmup_tokens = 0;
    options.tokens = 1;
    SyntheticAccesses accesses(model, {.active = kShareListed}, nullptr);
    return Simulate(FlatDevice(1e9, 1e8), model, options, accesses).mean_miss_rate();
  };
  EXPECT_EQ(misses_of_first(false), 1);
  EXPECT_LT(misses_of_first(true), 0.3);
}

// ---- what devices cost ----

TEST(SimulatorTest, GatheredWeightsCostMoreThanThoseOfMatrices) {
  const SimModel model = SmallSimModel();
  SimDevice device = FlatDevice(1e9, 1e8);
  const auto compute = [&](SimPipeline pipeline) {
    return RunSynthetic(device, model, With(pipeline, std::nullopt)).compute_seconds;
  };
  const double gathered = compute(SimPipeline::kCluster), mapped = compute(SimPipeline::kMmap);
  device.gathered_cost = 1.5;
  EXPECT_NEAR(compute(SimPipeline::kCluster), 1.5 * gathered, 1e-3 * gathered);
  EXPECT_EQ(compute(SimPipeline::kMmap), mapped);
}

TEST(SimulatorTest, TheSystemTakesInPagesOfAMappedFileAtItsOwnRate) {
  const SimModel model = SmallSimModel();
  SimDevice device = FlatDevice(1e15, 1e9);
  const SimOptions options = With(SimPipeline::kMmap, 0);
  const SimResult of_flash = RunSynthetic(device, model, options);
  device.mmap_bytes_per_s = 1e8;
  const SimResult of_system = RunSynthetic(device, model, options);
  EXPECT_EQ(of_system.bytes_per_token, of_flash.bytes_per_token);
  EXPECT_NEAR(of_system.mean_seconds(), of_system.bytes_per_token / 1e8,
              0.01 * of_system.mean_seconds());
}

// P2's port of LLM in a Flash: a window of five tokens, all of which is multiplied.
TEST(SimulatorTest, LlmInAFlashComputesItsWindow) {
  const SimModel model = SmallSimModel();
  const SimDevice device = FlatDevice(1e9, 1e8);
  const uint64_t cache = model.slots_bytes() - 1;
  const SimResult window = RunSynthetic(device, model, With(SimPipeline::kLlmFlash, cache));
  const SimResult listed = RunSynthetic(device, model, With(SimPipeline::kBlocking, cache));
  EXPECT_GT(window.compute_seconds, 1.3 * listed.compute_seconds);
  EXPECT_GT(window.mean_miss_rate(), listed.mean_miss_rate()) << "although there is room";
}

// ---- accesses ----

TEST(SimulatorTest, SyntheticAccessesHaveTheStatisticsAskedFor) {
  const SimModel model = SmallSimModel(8, 2);
  const auto overlap = [&](double topic_share, double* listed) {
    SyntheticAccesses accesses(model, {.active = 0.1, .topic_share = topic_share, .seed = 5},
                               nullptr);
    std::vector<SimList> lists;
    std::set<int64_t> last;
    double kept = 0, all = 0;
    for (int token = 0; token < 60; ++token) {
      EXPECT_TRUE(accesses.Next(lists));
      EXPECT_EQ(lists.size(), 4u * 2);
      std::set<int64_t> now;
      for (const SimList& list : lists) {
        EXPECT_EQ(list.layer, list.ffn / 8);
        EXPECT_TRUE(std::is_sorted(list.neurons.begin(), list.neurons.end()));
        for (const int32_t neuron : list.neurons) now.insert(list.ffn * 512 + neuron);
      }
      for (const int64_t key : now) kept += static_cast<double>(last.count(key));
      all += static_cast<double>(now.size());
      last = std::move(now);
    }
    *listed = all / 60;
    return kept / all;
  };
  double listed = 0;
  const double low = overlap(0.1, &listed);
  EXPECT_NEAR(listed, 0.1 * 4 * 2 * 512, 0.06 * listed);
  const double high = overlap(0.9, &listed);
  EXPECT_NEAR(listed, 0.1 * 4 * 2 * 512, 0.06 * listed);
  EXPECT_GT(high, low + 0.1);
}

TEST(SimulatorTest, ReplaysARecordedSequence) {
  const SimModel model = SmallSimModel();
  AccessSequence sequence;
  sequence.num_layers = 4;
  sequence.num_neurons = 512;
  for (int token = 0; token < 6; ++token) {
    for (int32_t layer = 0; layer < 4; ++layer) {
      for (int32_t i = 0; i < 10; ++i) sequence.Append(layer * 512 + 400 + i);
      sequence.EndBatch();
    }
    sequence.EndPass();
  }
  SimOptions options = With(SimPipeline::kCluster, 40 * model.slot_bytes);
  options.warmup_tokens = 0;
  options.tokens = 100;  // more than there are
  RecordedAccesses accesses(model, sequence);
  const SimResult result = Simulate(FlatDevice(1e9, 1e8), model, options, accesses);
  ASSERT_EQ(result.tokens.size(), 6u);
  EXPECT_EQ(result.tokens[0].listed, 40);
  EXPECT_EQ(result.tokens[0].missed, 40);
  EXPECT_EQ(result.tokens[5].missed, 0);
  options.warmup_tokens = 6;
  RecordedAccesses again(model, sequence);
  EXPECT_THAT(SimErrorOf([&] { Simulate(FlatDevice(1e9, 1e8), model, options, again); }),
              HasSubstr("before any is measured"));
  sequence.num_neurons = 1024;
  EXPECT_THAT(SimErrorOf([&] { RecordedAccesses(model, sequence); }), HasSubstr("trace: "));
}

TEST(SimulatorTest, WholeExpertsAreReadAndComputedAsOne) {
  const SimModel experts = SmallSimModel(8, 2);
  const SimModel model = WholeExperts(experts);
  AccessSequence sequence;
  sequence.unit = AccessUnit::kExperts;
  sequence.num_layers = 4;
  sequence.num_experts = 8;
  for (int32_t layer = 0; layer < 4; ++layer) {
    sequence.Append(layer * 8 + 1);
    sequence.Append(layer * 8 + 5);
    sequence.EndBatch();
  }
  sequence.EndPass();
  SimOptions options = With(SimPipeline::kCluster, 0);
  options.warmup_tokens = 0;
  RecordedAccesses accesses(model, sequence);
  const SimResult result = Simulate(FlatDevice(1e9, 1e8), model, options, accesses);
  EXPECT_EQ(result.reads_per_token, 8);
  EXPECT_EQ(result.bytes_per_token, 8.0 * 512 * 8192);
  EXPECT_NEAR(result.compute_seconds * 4e9, 8.0 * 512 * 3 * 1024, 1e3);
}

// ---- refusals, pictures ----

TEST(SimulatorTest, RefusesWhatMakesNoSense) {
  const SimModel model = SmallSimModel();
  EXPECT_THAT(SimErrorOf([&] { SimCacheBytes(model, SimPipeline::kCluster, 1 << 20); }),
              HasSubstr("must be in memory"));
  EXPECT_THAT(SimErrorOf([&] { SyntheticAccesses(model, {.active = 0}, nullptr); }),
              HasSubstr("active: "));
  EXPECT_THAT(SimErrorOf([&] { SyntheticAccesses(model, {.topic_share = 1}, nullptr); }),
              HasSubstr("topic_share: "));
  SimOptions options;
  options.tokens = 0;
  SyntheticAccesses accesses(model, {}, nullptr);
  EXPECT_THAT(SimErrorOf([&] { Simulate(OnePlus12(), model, options, accesses); }),
              HasSubstr("tokens"));
  ModelProfile profile;
  profile.model_name = "other";
  EXPECT_THAT(SimErrorOf([&] { SyntheticAccesses(model, {}, &profile); }), HasSubstr("other"));
}

TEST(SimulatorTest, DrawsACurvePerPipeline) {
  const std::string svg = PlotSimulation("phone", {{SimPipeline::kCluster, 7, 2.1},
                                                   {SimPipeline::kCluster, 19, 11.7},
                                                   {SimPipeline::kLlmFlash, 7, 1.2}});
  EXPECT_THAT(svg, HasSubstr("llmflash"));
  EXPECT_THAT(svg, HasSubstr("<polyline"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace hearth
