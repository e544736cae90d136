#include "planner/emulator/hybrid_replay.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "prepare/synth/planted_options.h"

namespace hearth {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// One byte per second takes a second everywhere, multiply-adds and launches nothing.
EmulatedMachine Slow() {
  EmulatedMachine machine;
  machine.name = "slow";
  machine.device_bytes_per_s = 10;
  machine.host_bytes_per_s = 1;
  machine.device_macs_per_s = machine.host_macs_per_s = 1e30;
  machine.link_bytes_per_s = 1e30;
  machine.link_seconds = 3;
  machine.flash.random = {{1, 0.5}};
  return machine;
}

EmulatedModel Tiny() {
  EmulatedModel model;
  model.name = "tiny";
  model.num_layers = 2;
  model.hidden = 1;
  model.vocab = 1;
  model.neurons = 64;
  model.attention_bytes = 20;
  model.predictor_bytes = 10;
  model.neuron_bytes = 1;
  model.output_bytes = 5;
  model.bytes_per_weight = 1;
  return model;
}

TEST(HybridClockTest, BothSidesWorkAtOnceAndMergeOnce) {
  const EmulatedMachine machine = Slow();
  const EmulatedModel model = Tiny();
  EmulatedPlacement placed = {.system = EmulatedSystem::kPlaced,
                              .dense_layers = 0,
                              .device_neurons = {32, 0},
                              .host_neurons = {32, 64}};
  HybridClock clock(machine, model, placed);
  EmulatedWork work;
  // Layer 0: 30 of attention and predictor; the device's 20 neurons take 3 + 2 + 3, the host's 4
  // take 4. Layer 1: 30 and 7, nothing there. Output: 5.
  const std::vector<EmulatedLists> lists = {{20, 4, 0, 20, 4}, {0, 7, 0, 0, 7}};
  EXPECT_NEAR(clock.PassSeconds(1, 0, lists, nullptr, &work), 30 + 8 + 30 + 7 + 5, 1e-9);
  EXPECT_EQ(work.device_bytes, 20);
  EXPECT_EQ(work.host_bytes, 30 + 4 + 30 + 7 + 5);
  EXPECT_EQ(work.device_ffn_bytes, 20);
  // A slower host hides the device.
  const std::vector<EmulatedLists> more = {{20, 14, 0, 20, 14}, {0, 7, 0, 0, 7}};
  EXPECT_NEAR(clock.PassSeconds(1, 0, more, nullptr, nullptr), 30 + 14 + 30 + 7 + 5, 1e-9);
  // Attention of layer 0 on the device: 3 to get there, 3 of it; then the host is the one that a
  // vector goes to and comes from.
  placed.dense_layers = 1;
  EXPECT_NEAR(clock.PassSeconds(1, 0, lists, nullptr, nullptr),
              3 + 3 + (3 + 4 + 3) + (3 + 30) + 7 + 5, 1e-9);
}

TEST(HybridClockTest, ReadsOverlapWithComputingAndEndIt) {
  const EmulatedMachine machine = Slow();
  const EmulatedModel model = Tiny();
  const EmulatedPlacement placed = {.system = EmulatedSystem::kPlaced,
                                    .dense_layers = 0,
                                    .device_neurons = {0, 0},
                                    .host_neurons = {32, 64}};
  HybridClock clock(machine, model, placed);
  EmulatedWork work;
  // Six neurons of layer 0 come at half a byte per second; the last is computed when it is there.
  const std::vector<EmulatedLists> lists = {{0, 4, 6, 0, 10}, {0, 7, 0, 0, 7}};
  EXPECT_NEAR(clock.PassSeconds(1, 0, lists, nullptr, &work), 30 + (12 + 1) + 30 + 7 + 5, 1e-9);
  EXPECT_EQ(work.flash_bytes, 6);
  DeviceModel flash(machine.flash);
  EXPECT_NEAR(clock.PassSeconds(1, 0, lists, &flash, nullptr), 30 + (12 + 1) + 30 + 7 + 5, 1e-6);
  const std::vector<EmulatedLists> few = {{0, 40, 6, 0, 46}, {0, 7, 0, 0, 7}};
  EXPECT_NEAR(clock.PassSeconds(1, 0, few, nullptr, nullptr), 30 + 46 + 30 + 7 + 5, 1e-9);
}

TEST(HybridClockTest, LayersComputeEverything) {
  const EmulatedMachine machine = Slow();
  const EmulatedModel model = Tiny();
  const EmulatedPlacement placed = {.system = EmulatedSystem::kLayers,
                                    .dense_layers = 1,
                                    .device_neurons = {64, 0},
                                    .host_neurons = {0, 64}};
  HybridClock clock(machine, model, placed);
  EXPECT_NEAR(clock.PassSeconds(1, 0, {}, nullptr, nullptr), 3 + 8.4 + 3 + 84 + 5, 1e-9);
}

std::vector<double> Rates(const EmulatedModel& model) {
  return PowerLawRates(model.neurons, 0.1, 0.28);
}

TEST(EmulatedModelTest, SizesAreThoseOfTheShape) {
  const EmulatedModel model = EmulatedModelOf(FindPlannedShape("opt-30b"), DType::kF16);
  // 4 h^2 of attention, in half precision, and norms.
  EXPECT_NEAR(static_cast<double>(model.attention_bytes), 2.0 * 4 * 7168 * 7168, 1e6);
  EXPECT_EQ(model.neuron_bytes, 2u * 2 * 7168 + 4);
  EXPECT_EQ(model.output_bytes, 2u * 50272 * 7168);
  const double all = 48.0 * static_cast<double>(model.attention_bytes + model.ffn_bytes()) +
                     static_cast<double>(model.output_bytes);
  EXPECT_NEAR(all, 60e9, 2e9);  // P1 §8: a 60 GB model
  EXPECT_NEAR(48.0 * static_cast<double>(model.predictor_bytes), 0.0709 * all, 0.01 * all);
  EXPECT_THROW(EmulatedModelOf(FindPlannedShape("mixtral-8x7b"), DType::kF16), Error);
}

TEST(EmulatedModelTest, NothingIsPlacedTwiceOrPastItsBudget) {
  for (const char* name : {"opt-30b", "opt-66b", "falcon-40b"}) {
    const EmulatedModel model = EmulatedModelOf(FindPlannedShape(name), DType::kF16);
    for (const uint64_t host_gib : {16, 64, 192}) {
      const EmulatedBudgets budgets = {8 * kGiB, host_gib * kGiB, 192};
      for (const EmulatedSystem system : kEmulatedSystems) {
        SCOPED_TRACE(std::string(name) + " " + EmulatedSystemName(system));
        const EmulatedMachine machine = FindEmulatedMachine("rtx-4090");
        EmulatedPlacement placed;
        try {
          placed = PlaceEmulated(machine, model, budgets, system, Rates(model));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
          EXPECT_THAT(error.what(), ::testing::HasSubstr("P1 constraint 6"));
          EXPECT_LT(host_gib, 64u);
          continue;
        }
        uint64_t there =
            static_cast<uint64_t>(placed.dense_layers) *
            (model.attention_bytes + (ListsNeurons(system) ? model.predictor_bytes : 0));
        if (placed.output_on_device) there += model.output_bytes;
        for (size_t l = 0; l < placed.device_neurons.size(); ++l) {
          EXPECT_GE(placed.device_neurons[l], 0);
          EXPECT_LE(placed.device_neurons[l] + placed.host_neurons[l], model.neurons);
          there += static_cast<uint64_t>(placed.device_neurons[l]) * model.neuron_bytes;
        }
        EXPECT_LE(there, budgets.device_bytes);
        if (system == EmulatedSystem::kPlaced) {
          EXPECT_GT(there, budgets.device_bytes * 9 / 10);
        }
      }
    }
  }
}

// What `plan --memory 16G` refuses: attention fits on both units together, neurons come from flash.
TEST(HybridReplayTest, FlashIsATier) {
  const ModelShape shape = FindPlannedShape("opt-66b");
  const EmulatedModel model = EmulatedModelOf(shape, DType::kQ4_0);
  EmulationOptions options = {.budgets = {8 * kGiB, 16 * kGiB, 96},
                              .active = 0.03,
                              .skew = 0.26,
                              .prompt_tokens = 8,
                              .decode_tokens = 2};
  const Emulation emulation = Emulate(FindEmulatedMachine("rtx-4090"), model, shape, options);
  EXPECT_GT(emulation.work.flash_bytes, 0);
  int64_t held = 0;
  for (size_t l = 0; l < emulation.placement.device_neurons.size(); ++l) {
    held += emulation.placement.device_neurons[l] + emulation.placement.host_neurons[l];
  }
  EXPECT_LT(held, model.num_layers * model.neurons);
  options.budgets.host_bytes = 192 * kGiB;
  const Emulation roomy = Emulate(FindEmulatedMachine("rtx-4090"), model, shape, options);
  EXPECT_EQ(roomy.work.flash_bytes, 0);
  EXPECT_LT(roomy.token_seconds, emulation.token_seconds);
}

// Each step of P1 Figure 15 is faster than the one before, and the same seed gives the same times.
TEST(HybridReplayTest, EachPartOfThePaperHelps) {
  const ModelShape shape = FindPlannedShape("falcon-40b");
  const EmulatedModel model = EmulatedModelOf(shape, DType::kF16);
  const EmulatedMachine machine = FindEmulatedMachine("rtx-4090");
  EmulationOptions options = {.budgets = {24 * kGiB, 192 * kGiB, 96},
                              .active = 0.05,
                              .skew = 0.26,
                              .prompt_tokens = 8,
                              .decode_tokens = 3};
  double last = INFINITY;
  for (const EmulatedSystem system : kEmulatedSystems) {
    options.system = system;
    const Emulation emulation = Emulate(machine, model, shape, options);
    EXPECT_LE(emulation.token_seconds, last) << EmulatedSystemName(system);
    EXPECT_EQ(Emulate(machine, model, shape, options).token_seconds, emulation.token_seconds);
    EXPECT_GT(emulation.device_load(), 0);
    last = emulation.token_seconds;
  }
}

TEST(UploadPipelineTest, StagesFollowEachOther) {
  // One piece: one stage after the other.
  const UploadedUnit one[] = {{1000, 5, false}};
  UploadTimes times = RunUploads(one, {.read_bytes_per_s = 1000, .upload_bytes_per_s = 500});
  EXPECT_DOUBLE_EQ(times.seconds, 1 + 2 + 5);
  // Two units: the second is read and uploaded while the first is computed.
  const UploadedUnit two[] = {{1000, 5, false}, {1000, 5, false}};
  times = RunUploads(two, {.read_bytes_per_s = 1000, .upload_bytes_per_s = 500});
  EXPECT_DOUBLE_EQ(times.seconds, 1 + 2 + 5 + 5);
  // With a single slot it waits until the first is computed.
  times = RunUploads(two, {.read_bytes_per_s = 1000, .upload_bytes_per_s = 500}, {.slots = 1});
  EXPECT_DOUBLE_EQ(times.seconds, 1 + 2 + 5 + 2 + 5);
  // What is there already waits for nobody.
  const UploadedUnit there[] = {{1000, 5, true}, {1000, 5, false}};
  times = RunUploads(there, {.read_bytes_per_s = 1000, .upload_bytes_per_s = 500});
  EXPECT_DOUBLE_EQ(times.seconds, 5 + 5);
  EXPECT_DOUBLE_EQ(times.read, 1);
}

// P1's headline cases: a pass takes little more than its longest stage, whichever that is, and
// without the overlap it takes clearly more.
TEST(UploadPipelineTest, StagesOverlap) {
  for (const char* machine_name : {"rtx-4090", "rtx-2080ti", "adreno-750"}) {
    const EmulatedMachine machine = FindEmulatedMachine(machine_name);
    for (const char* name : {"opt-30b", "llama2-70b", "falcon-40b"}) {
      const EmulatedModel model = EmulatedModelOf(FindPlannedShape(name), DType::kQ4_0);
      for (const int64_t tokens : {32, 256, 2048}) {
        SCOPED_TRACE(std::string(machine_name) + " " + name + " " + std::to_string(tokens));
        EmulatedPlacement nothing_there{.system = EmulatedSystem::kLayers};
        nothing_there.device_neurons.assign(static_cast<size_t>(model.num_layers), 0);
        nothing_there.host_neurons = nothing_there.device_neurons;
        for (const bool is_on_flash : {false, true}) {
          nothing_there.flash_bytes = is_on_flash ? UINT64_MAX / 2 : 0;
          const UploadTimes times = UploadedPrompt(machine, model, nothing_there, tokens);
          EXPECT_LE(times.seconds, 1.15 * times.longest());
          EXPECT_GE(times.seconds, times.longest());
          EXPECT_GT(times.read + times.upload + times.compute, times.longest());
        }
      }
    }
  }
}

TEST(EmulatedMachineTest, NamesAreKnown) {
  for (const std::string& name : EmulatedMachineNames()) {
    const EmulatedMachine machine = FindEmulatedMachine(name);
    EXPECT_EQ(machine.name, name);
    CheckProfile(machine.flash);
  }
  EXPECT_THROW(FindEmulatedMachine("rtx-9090"), Error);
}

}  // namespace
}  // namespace hearth
