#include "planner/placement/place_matrices.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/test_folder.h"
#include "engine/load/engine_plan.h"
#include "engine/load/placed_matrices.h"
#include "plan/ledger.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/synth.h"

namespace hearth {
namespace {

constexpr int64_t kLayers = 3, kExperts = 16, kChosen = 2, kTokens = 100;
constexpr uint64_t kExpertBytes = uint64_t{3} * 256 * 512 * 18 / 32;

class PlaceMatricesTest : public ::testing::Test {
 protected:
  PlaceMatricesTest() : folder_("place_matrices") {
    SynthesizeModel(ParseShape(R"({"arch": "qwen3moe", "hidden_size": 256, "num_experts": 16,
                                   "intermediate_size": 512, "num_layers": 3, "num_heads": 4,
                                   "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600,
                                   "num_experts_per_token": 2})",
                               "mixture"),
                    {.quant = DType::kQ4_0, .threads = 2}, folder_.Path("model.gguf"));
  }

  GgufFile File() const { return GgufFile::Open(folder_.Path("model.gguf")); }
  // A card beside a processor.
  static PlacementMachine Card(uint64_t bytes) {
    return {.device_bytes = bytes,
            .device_bytes_per_s = 5e11,
            .host_bytes_per_s = 2e10,
            .link_bytes_per_s = 16e9,
            .link_seconds = 1e-7};
  }
  // Every token chooses experts 5 and 9 in the first layer, others by turns in the others.
  static AccessRecord Record() {
    AccessRecord record{.lists = {}, .tokens = kTokens};
    record.lists.unit = AccessUnit::kExperts;
    record.lists.num_layers = kLayers;
    record.lists.num_experts = kExperts;
    for (int32_t token = 0; token < kTokens; ++token) {
      for (int32_t layer = 0; layer < kLayers; ++layer) {
        const int32_t base = layer * kExperts;
        record.lists.Append(base + (layer == 0 ? 5 : token % kExperts));
        record.lists.Append(base + (layer == 0 ? 9 : (token + 1) % kExperts));
        record.lists.EndBatch();
      }
      record.lists.EndPass();
    }
    return record;
  }
  static uint64_t Sum(const MatrixShare& share) { return LedgerSum(share.planned.ledger); }
  // A context with few keys and values.
  static EngineOptions Options() { return {.context = 64}; }
  // What the device takes for what every token needs, keys and values and scratch.
  uint64_t BytesWithoutExperts() const {
    const MatrixShare all = PlaceMatrices(File(), nullptr, Card(uint64_t{1} << 30), Options());
    return Sum(all) - kLayers * kExperts * kExpertBytes;
  }

  TestFolder folder_;
};

TEST_F(PlaceMatricesTest, EverythingGoesWhereItFits) {
  const MatrixShare share = PlaceMatrices(File(), nullptr, Card(uint64_t{1} << 30), {});
  for (const PlacedLayer& layer : share.planned.matrices.layers) {
    EXPECT_TRUE(layer.attention);
    EXPECT_EQ(std::ssize(layer.experts), kExperts);
  }
  EXPECT_THAT(share.experts_here, ::testing::Each(0));
  EXPECT_GT(share.dense_seconds, 0);
}

TEST_F(PlaceMatricesTest, TheHottestExpertsComeFirst) {
  const AccessRecord record = Record();
  const uint64_t room = BytesWithoutExperts() + 4 * kExpertBytes + 1000;
  const MatrixShare share = PlaceMatrices(File(), &record, Card(room), Options());
  const std::vector<PlacedLayer>& layers = share.planned.matrices.layers;
  EXPECT_TRUE(std::binary_search(layers[0].experts.begin(), layers[0].experts.end(), 5));
  EXPECT_TRUE(std::binary_search(layers[0].experts.begin(), layers[0].experts.end(), 9));
  int64_t experts = 0;
  for (const PlacedLayer& layer : layers) experts += std::ssize(layer.experts);
  EXPECT_EQ(experts, 4);
  EXPECT_NEAR(share.experts_here[0], 0, 1e-9);
  EXPECT_LE(Sum(share), room);
  // Without a record the first layer has no more claim than others.
  const MatrixShare blind = PlaceMatrices(File(), nullptr, Card(room), Options());
  EXPECT_GT(blind.experts_here[0], 0.5);
  // What is left to the processor is asked for as before, and no more.
  const AccessRecord beside = BesideMatrices(record, share.planned.matrices);
  EXPECT_EQ(beside.lists.num_passes(), record.lists.num_passes());
  double here = 0;
  for (const double layer : share.experts_here) here += layer * kChosen * kTokens;
  EXPECT_NEAR(static_cast<double>(beside.lists.num_accesses()), here, 1);
}

TEST_F(PlaceMatricesTest, ExpertsThatDoNotPayStay) {
  PlacementMachine far = Card(uint64_t{1} << 30);
  far.link_seconds = 1;
  const MatrixShare share = PlaceMatrices(File(), nullptr, far, {});
  for (const PlacedLayer& layer : share.planned.matrices.layers) {
    EXPECT_THAT(layer.experts, ::testing::IsEmpty());
  }
  PlacementMachine small = Card(1000);
  EXPECT_THROW(PlaceMatrices(File(), nullptr, small, {}), Error);
}

TEST(AddMatricesTest, TheProcessorWaitsForWhatTakesLonger) {
  MatrixShare share;
  share.dense_seconds = 0.002;
  share.ffn_seconds = {0.001, 0.010};
  share.experts_here = {0.5, 0.5};
  TokenCost cost;
  cost.time.attention_ms = 1;
  cost.time.token_ms = 9;  // 4 ms of FFNs in each layer
  AddMatrices(share, cost);
  EXPECT_DOUBLE_EQ(cost.time.device_ms, 13);
  EXPECT_DOUBLE_EQ(cost.device_wait_ms, 2 + 0 + 6);
  EXPECT_DOUBLE_EQ(cost.time.token_ms, 17);
}

}  // namespace
}  // namespace hearth
