#include "planner/cost/device_share.h"

#include <gmock/gmock.h>

#include <cmath>

#include "engine/load/engine_plan.h"
#include "plan/ledger.h"
#include "planner/cost/test_planned_model.h"
#include "planner/placement/device_placement.h"

namespace hearth {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kModelNeurons = 6144;  // of an FFN of the planned model

// Two tokens of two layers with ten neurons each.
AccessRecord SmallRecord() {
  AccessRecord record;
  record.lists.num_layers = 2;
  record.lists.num_neurons = 10;
  for (const std::vector<int32_t>& batch :
       std::vector<std::vector<int32_t>>{{0, 3, 9}, {10, 18}, {3, 4}, {11, 12, 19}}) {
    for (const int32_t key : batch) record.lists.Append(key);
    record.lists.EndBatch();
    if (batch.front() >= 10) record.lists.EndPass();
  }
  record.tokens = 2;
  record.activity = {.gate = 5, .up = 4, .down = 3};
  return record;
}

TEST(DeviceShareTest, ListsAreCutWhereTheDeviceEnds) {
  const std::vector<int64_t> there = {4, 2};
  const DeviceLoad load = LoadOf(SmallRecord(), there);
  EXPECT_THAT(load.there, ElementsAre(1.5, 1));  // 0, 3, 3; 10, 11
  EXPECT_THAT(load.here, ElementsAre(1, 1.5));   // 9, 4; 18, 12, 19
  const AccessRecord beside = BesideDevice(SmallRecord(), FfnMode::kPredicted, there);
  EXPECT_EQ(beside.lists.num_neurons, 8);  // of the layer with the most beside the device
  // 9 and 4 of layer 0 are 5 and 0; 18, 12 and 19 of layer 1 are 6, 0 and 7, from 8 on.
  EXPECT_THAT(beside.lists.keys(), ElementsAre(5, 8 + 6, 0, 8 + 0, 8 + 7));
  EXPECT_EQ(beside.lists.num_passes(), 2);
  EXPECT_NEAR(beside.activity.gate, 2.5, 1e-12);
  EXPECT_NEAR(beside.activity.down, 1.5, 1e-12);
  // In `gated` every gate that is here is multiplied.
  EXPECT_NEAR(BesideDevice(SmallRecord(), FfnMode::kGated, there).activity.gate, 5 * 14 / 20.0,
              1e-12);
}

// Two experts of five neurons in each layer.
TEST(DeviceShareTest, EveryExpertOfAMixtureIsCut) {
  AccessRecord record = SmallRecord();
  record.lists.num_experts = 2;
  record.lists.num_neurons = 5;
  const std::vector<int64_t> there = {1, 4};
  const DeviceLoad load = LoadOf(record, there);
  // Neurons 0 and 3 of expert 0 and 4 of expert 1, then 3 and 4 of expert 0; of layer 1 neuron 0
  // of expert 0 and 3 of expert 1, then 1 and 2 of expert 0 and 4 of expert 1.
  EXPECT_THAT(load.there, ElementsAre(0.5, 2));
  EXPECT_THAT(load.here, ElementsAre(2, 0.5));
  const AccessRecord beside = BesideDevice(record, FfnMode::kGated, there);
  EXPECT_EQ(beside.lists.num_experts, 2);
  EXPECT_EQ(beside.lists.num_neurons, 4);
  EXPECT_THAT(beside.lists.keys(), ElementsAre(2, 4 + 3, 2, 3, 3 * 4 + 0));
  EXPECT_NEAR(beside.activity.gate, 5 * 5 / 10.0, 1e-12);
  EXPECT_NEAR(beside.activity.down, 3 * 2.5 / 5, 1e-12);
  const DeviceLoad full = FullLoad(5, 2, there);
  EXPECT_THAT(full.there, ElementsAre(2, 8));
  EXPECT_THAT(full.here, ElementsAre(8, 2));
  // Of the two experts that a token computes every gate is multiplied.
  DeviceShare share = {.planned = {.layer_neurons = {4}},
                       .neuron_bytes = 1000,
                       .experts_per_token = 2,
                       .gate_share = 0.5,
                       .bytes_per_s = 1e6};
  TokenCost gated;
  AddDevice(share, {.there = {3}, .here = {1}}, FfnMode::kGated, gated);
  EXPECT_NEAR(gated.time.device_ms, 3 + 0.5 * 5, 1e-9);
  EXPECT_NEAR(PromptSecondsOnDevice(share), 0.008, 1e-12);
}

TEST(DeviceShareTest, ATokenWaitsForTheSlowerSide) {
  DeviceShare share = {.planned = {.layer_neurons = {4, 0}},
                       .neuron_bytes = 1000,
                       .gate_share = 0.5,
                       .bytes_per_s = 1e6,
                       .sync_seconds = 0.002};
  DeviceLoad load = {.there = {3, 0}, .here = {1, 3}};
  TokenCost cost;
  cost.time.attention_ms = 1;
  cost.time.token_ms = 1 + 4;  // a millisecond for each neuron
  AddDevice(share, load, FfnMode::kPredicted, cost);
  EXPECT_NEAR(cost.time.device_ms, 2 + 3, 1e-9);  // none where it has no part
  EXPECT_NEAR(cost.time.token_ms, 5 + 4, 1e-9);   // beside 1 ms of the processor
  EXPECT_STREQ(cost.bound(), "device");
  TokenCost gated;
  gated.time.token_ms = 40;
  AddDevice(share, load, FfnMode::kGated, gated);
  EXPECT_NEAR(gated.time.device_ms, 2 + 3 + 0.5, 1e-9);  // one neuron's gate alone
  EXPECT_NEAR(gated.time.token_ms, 40, 1e-9);            // hidden by 10 ms of the processor
  EXPECT_STREQ(gated.bound(), "memory");
}

class DevicePlannedTest : public PlannedModelTest {
 protected:
  static PlacementMachine Card(uint64_t bytes) {
    return {.device_bytes = bytes,
            .device_bytes_per_s = 1e12,
            .host_bytes = {},
            .host_bytes_per_s = 1e10,
            .link_bytes_per_s = 2e10,
            .link_seconds = 1e-6};
  }
  static PlannedRun PlanWith(const DevicePlacement& placement, FfnMode mode,
                             std::optional<uint64_t> memory_bytes) {
    PlanRequest request = Request(mode, memory_bytes);
    request.device = placement.share;
    request.engine.may_stream = placement.is_streamed;
    const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
    return MakePlan(request, testing::SampleHardware(), &*accesses);
  }
};

TEST_F(DevicePlannedTest, WhatIsThereIsNotHere) {
  for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated}) {
    const uint64_t memory = Resident(mode) + (uint64_t{8} << 20);
    const DevicePlacement placement = PlaceOnDevice(
        GgufFile::Open(Model()), nullptr, Card(uint64_t{20} << 20), Request(mode, memory).engine);
    EXPECT_FALSE(placement.is_streamed);
    const PlannedDevice& planned = placement.share.planned;
    uint64_t there = 0;
    for (const int64_t neurons : planned.layer_neurons) there += static_cast<uint64_t>(neurons);
    EXPECT_EQ(planned.ledger.at("neurons"), there * 864);
    const uint64_t sum = LedgerSum(planned.ledger);
    EXPECT_LE(sum, uint64_t{20} << 20);
    EXPECT_GT(sum, uint64_t{17} << 20);
    for (const PlacedLayer& layer : planned.matrices.layers) {
      EXPECT_TRUE(layer.attention);
      EXPECT_EQ(layer.predictor, mode == FfnMode::kPredicted);
    }
    EXPECT_GT(planned.matrices.kv_tokens, 0);
    const ExecutionPlan plan = PlanWith(placement, mode, memory).plan;
    const ExecutionPlan alone = Plan(mode, memory).plan;
    ASSERT_TRUE(plan.device);
    EXPECT_EQ(plan.device->layer_neurons, planned.layer_neurons);
    // Rows of Q4_0 begin on 64 bytes here: 320 bytes each. Matrices have their size on both sides.
    EXPECT_NEAR(static_cast<double>(alone.ledger.at("weights") - plan.ledger.at("weights")),
                static_cast<double>(there * 3 * 320 + planned.ledger.at("matrices")), 65536);
    EXPECT_LT(plan.time.attention_ms, alone.time.attention_ms);
    EXPECT_LT(plan.time.ffn_ms, 0.8 * alone.time.ffn_ms);
    EXPECT_LT(plan.time.token_ms, alone.time.token_ms);
    EXPECT_GT(plan.time.device_ms, 0);
  }
}

TEST_F(DevicePlannedTest, ARestThatDoesNotFitIsStreamed) {
  const FfnMode mode = FfnMode::kPredicted;
  const EngineOptions roomy = Request(mode, Resident(mode)).engine;
  const GgufFile file = GgufFile::Open(Model());
  const PlannedDevice there =
      PlaceOnDevice(file, nullptr, Card(uint64_t{16} << 20), roomy).share.planned;
  const uint64_t rest =
      PlanEngine(file, roomy, {.neurons = there.layer_neurons, .matrices = &there.matrices})
          .needed_bytes();
  const uint64_t memory = rest - (uint64_t{5} << 20);
  const DevicePlacement placement =
      PlaceOnDevice(file, nullptr, Card(uint64_t{16} << 20), Request(mode, memory).engine);
  EXPECT_TRUE(placement.is_streamed);
  const std::vector<int64_t>& uniform = placement.share.planned.layer_neurons;
  EXPECT_THAT(uniform, Each(uniform.front()));
  EXPECT_GT(uniform.front(), kModelNeurons / 4);
  const ExecutionPlan plan = PlanWith(placement, mode, memory).plan;
  ASSERT_TRUE(plan.stream);
  EXPECT_LE(plan.ledger_bytes(), memory);
  EXPECT_LE(uniform.front() + plan.stream->pinned_neurons, kModelNeurons);
  EXPECT_GT(plan.bytes_read_per_token, 0u);
  // Less is read than without a device in the same memory.
  EXPECT_LT(plan.bytes_read_per_token, Plan(mode, memory).plan.bytes_read_per_token);
}

TEST_F(DevicePlannedTest, ADeviceThatNeverPaysIsRefusedByName) {
  PlacementMachine slow = Card(uint64_t{16} << 20);
  slow.link_seconds = 1;
  const auto place = [](const PlacementMachine& machine) {
    return PlaceOnDevice(GgufFile::Open(Model()), nullptr, machine,
                         Request(FfnMode::kPredicted, uint64_t{1} << 30).engine);
  };
  for (const auto& [machine, words] :
       {std::pair(slow, "P1 constraint 4"), std::pair(Card(1 << 20), "scratch")}) {
    try {
      place(machine);
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
      EXPECT_EQ(error.field(), "device_memory");
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace hearth
