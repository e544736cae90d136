// An execution plan that puts neurons on a device, each layer by itself (P1 §6): obeyed to the byte
// and the neuron, or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hybrid_models.h"
#include "measure/evaluate.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

class HybridPlanTest : public HybridModelTest {};

// What a plan says of each layer: here layers with none, all and some of them.
const std::vector<int64_t> kPlanned = {0, kNeurons, 300, 64, 1021};

DeviceRequest PlannedRequest(const std::string& path,
                             std::vector<int64_t> layer_neurons = kPlanned) {
  const GgufFile file = GgufFile::Open(path);
  DeviceRequest request = RequestOf({});
  request.memory_bytes.reset();
  request.planned = {
      .memory_bytes = 64 * kMiB,
      .ledger = DeviceLedger(file, PlanLoad(file), layer_neurons, EngineOptions().batch_tokens),
      .layer_neurons = std::move(layer_neurons)};
  return request;
}

TEST_F(HybridPlanTest, APlanPlacesEveryLayerByItself) {
  constexpr int64_t kTokens = 12;
  const DeviceRequest request = PlannedRequest(Default());
  const auto engine = Load(Default(), FfnMode::kGated, request);
  const DevicePart& device = *engine->device().part;
  EXPECT_THAT(device.layer_neurons(), ElementsAreArray(kPlanned));
  EXPECT_EQ(device.device().memory().Ledger(), request.planned->ledger);
  EXPECT_EQ(device.device().memory().limit_bytes(), 64 * kMiB);
  const int64_t placed = std::accumulate(kPlanned.begin(), kPlanned.end(), int64_t{0});
  EXPECT_EQ(device.device().memory().Ledger().at("neurons"), 3u * (256 + 16 + 16) * placed);
  const uint64_t all_bytes = Load(Default(), FfnMode::kGated, {})->budget().Ledger().at("weights");
  EXPECT_NEAR(static_cast<double>(all_bytes - engine->budget().Ledger().at("weights")),
              3.0 * 320 * static_cast<double>(placed), 8192 + 4096);
  for (const size_t chunk : {size_t{1}, size_t{kTokens}}) {
    const int64_t there = device.ffns()->neurons_computed();
    const int64_t here = engine->pass().ffn_counts().gate;
    Logits(*engine, kTokens, chunk);
    EXPECT_EQ(device.ffns()->neurons_computed() - there, kTokens * placed);
    EXPECT_EQ(engine->pass().ffn_counts().gate - here, kTokens * (kLayers * kNeurons - placed));
  }
}

TEST_F(HybridPlanTest, APlannedPlacementChangesNoLogits) {
  constexpr size_t kTokens = 20;
  for (const FfnMode mode : {FfnMode::kDense, FfnMode::kGated, FfnMode::kPredicted}) {
    for (const size_t chunk : {size_t{1}, kTokens}) {
      SCOPED_TRACE(::testing::Message() << FfnModeName(mode) << ", passes of " << chunk);
      const std::vector<float> expected = Logits(*Load(Floats(), mode, {}), kTokens, chunk);
      const auto engine = Load(Floats(), mode, PlannedRequest(Floats()), 1);
      const std::vector<float> logits = Logits(*engine, kTokens, chunk);
      EXPECT_LT(RelativeError(logits, expected), 1e-3);
      EXPECT_EQ(Logits(*Load(Floats(), mode, PlannedRequest(Floats()), 3), kTokens, chunk), logits);
      if (mode == FfnMode::kDense) continue;
      QualityMeter meter(engine->model().spec()), alone(engine->model().spec());
      EXPECT_EQ(Logits(*engine, kTokens, chunk, &meter), logits) << "watching changes it";
      Logits(*Load(Floats(), mode, {}), kTokens, chunk, &alone);
      EXPECT_NEAR(*meter.Result().active, *alone.Result().active, 1e-3);
      EXPECT_NEAR(meter.Result().computed, alone.Result().computed, 1e-3);
    }
  }
}

TEST_F(HybridPlanTest, APlanThatDoesNotHoldIsRefused) {
  const auto refusal = [](const DeviceRequest& request, ErrorCode code, const char* words) {
    EXPECT_THAT([&] { Load(Default(), FfnMode::kGated, request); },
                Throws<Error>(
                    AllOf(Property(&Error::code, code), Property(&Error::what, HasSubstr(words)))));
  };
  DeviceRequest request = PlannedRequest(Default());
  request.planned->ledger["neurons"] += 1;
  refusal(request, ErrorCode::kInvalidArgument, "device.ledger");
  request = PlannedRequest(Default());
  request.planned->layer_neurons.pop_back();
  refusal(request, ErrorCode::kInvalidArgument, "layers with neurons on a device: expected 5");
  request = PlannedRequest(Default(), {0, kNeurons + 1, 0, 0, 0});
  refusal(request, ErrorCode::kInvalidArgument, "at most 1024");
  request = PlannedRequest(Default());
  request.planned->memory_bytes = 1 << 20;
  refusal(request, ErrorCode::kOutOfBudget, "device.memory_bytes 1.00 MiB");
  request = PlannedRequest(Default());
  request.choice = {};
  refusal(request, ErrorCode::kInvalidArgument, "say on which");
}

}  // namespace
}  // namespace hearth
