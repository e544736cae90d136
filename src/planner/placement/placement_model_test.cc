#include "planner/placement/placement_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/test_data.h"
#include "prepare/synth/planted_options.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

// P1's PC-High: RTX 4090, PCIe 4.0, 67.2 GB/s of host memory.
PlacementMachine PcHigh() {
  PlacementMachine machine;
  machine.device_bytes = uint64_t{24} << 30;
  machine.device_bytes_per_s = 1008e9;
  machine.host_bytes_per_s = 67.2e9;
  machine.link_bytes_per_s = 64e9;
  machine.link_seconds = 10e-6;
  return machine;
}

PlacementModel ModelOf(const std::string& name, DType quant = DType::kQ4_0) {
  return PlacementModelOf(FindPlannedShape(name), quant, {});
}

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PlacementModelTest, CountsNeuronsAndBytesOfShapes) {
  const PlacementModel opt = ModelOf("opt-175b", DType::kF16);
  EXPECT_EQ(opt.num_layers * opt.neurons, 4'718'592);  // "4.7 million"
  EXPECT_EQ(opt.neuron_bytes, 2 * 12288 * 2 + 4u);     // two rows and a bias
  // 175 billion weights, and predictors.
  EXPECT_NEAR(static_cast<double>(opt.ffn_bytes() + opt.dense_bytes) / 2 / 1.0709, 175e9, 2e9);
  const PlacementModel llama = ModelOf("llama2-70b");
  EXPECT_EQ(llama.neuron_bytes, 3 * 8192 / 32 * 18u);
  EXPECT_NEAR(static_cast<double>(llama.ffn_bytes() + llama.dense_bytes) / 1.0709 * 32 / 18, 69e9,
              1e9);
  const PlacementModel falcon = ModelOf("falcon-40b", DType::kF16);
  EXPECT_NEAR(static_cast<double>(falcon.ffn_bytes() + falcon.dense_bytes) / 2 / 1.0709, 41e9,
              1.5e9);
  // Of 8 experts a token uses 2.
  const PlacementModel mixtral = ModelOf("turbosparse-mixtral-47b");
  EXPECT_EQ(mixtral.rates.size(), 32u * 8);
  const std::vector<double>& rates = mixtral.rates.front();
  EXPECT_NEAR(std::accumulate(rates.begin(), rates.end(), 0.0) / 14336, 0.1 * 2 / 8, 1e-4);
}

// A neuron of a layer is one of each expert; a token takes as long as with experts apart.
TEST(PlacementModelTest, ALayersExpertsMayBePlacedAlike) {
  PlacementModel apart = ModelOf("mixtral-8x7b");
  ASSERT_EQ(apart.ffns_per_layer, 8);
  EXPECT_EQ(apart.computed_share, 0.25);
  for (size_t expert = 0; expert < 8; ++expert) apart.rates[expert][0] = 0.9 + 0.01 * expert;
  const PlacementModel alike = ByLayer(apart);
  EXPECT_EQ(alike.ffns_per_layer, 1);
  EXPECT_EQ(alike.neuron_bytes, 8 * apart.neuron_bytes);
  EXPECT_EQ(alike.ffn_bytes(), apart.ffn_bytes());
  ASSERT_EQ(std::ssize(alike.rates), apart.num_layers);
  EXPECT_NEAR(alike.rates[0][0], 0.935, 1e-12);
  EXPECT_NEAR(alike.rates[1][5], apart.rates[8][5], 1e-12);
  const PlacedModel of_each = PlaceModel(apart, PcHigh(), DensePlace::kHost);
  const PlacedModel of_all = PlaceModel(alike, PcHigh(), DensePlace::kHost);
  EXPECT_NEAR(of_all.host_time.total(), of_each.host_time.total(), 1e-9);
  EXPECT_LE(of_all.placement.device_bytes, PcHigh().device_bytes);
  EXPECT_GT(of_all.placement.device_bytes, PcHigh().device_bytes / 2);
  EXPECT_NEAR(of_all.time.total(), of_each.time.total(), 0.05 * of_each.time.total());
}

TEST(PlacementModelTest, PlacesEveryPlannedShape) {
  for (const char* name : {"llama2-70b", "opt-6.7b", "opt-13b", "opt-30b", "opt-66b", "opt-175b",
                           "falcon-40b", "bamboo-7b", "turbosparse-mixtral-47b"}) {
    SCOPED_TRACE(name);
    const PlacementModel model = ModelOf(name);
    const PlacedModel placed = PlaceModel(model, PcHigh(), DensePlace::kAuto);
    const uint64_t dense = placed.dense_on_device ? model.dense_bytes : 0;
    EXPECT_LE(placed.placement.device_bytes + dense, PcHigh().device_bytes);
    EXPECT_EQ(placed.placement.device_bytes + placed.placement.host_bytes, model.ffn_bytes());
    EXPECT_GT(placed.placement.impact, 0);
    EXPECT_LT(placed.time.total(), placed.host_time.total());
  }
}

TEST(PlacementModelTest, TimeOfATokenIsBytesOverBandwidth) {
  const PlacementModel model = ModelOf("opt-30b");
  PlacementMachine machine = PcHigh();
  machine.device_bytes = uint64_t{100} << 30;  // everything fits
  const PlacedModel all = PlaceModel(model, machine, DensePlace::kDevice);
  EXPECT_EQ(all.placement.bound, PlacementBound::kNone);
  const double active = 0.1 * static_cast<double>(model.ffn_bytes());
  const auto dense = static_cast<double>(model.dense_bytes);
  EXPECT_NEAR(all.time.ffn_seconds, active / 1008e9, 1e-3 * active / 1008e9);
  EXPECT_NEAR(all.time.dense_seconds, dense / 1008e9, 1e-12);
  EXPECT_EQ(all.time.sync_seconds, 0);  // the host has no part
  EXPECT_NEAR(all.host_time.total(), (active + dense) / 67.2e9, 1e-3 * active / 67.2e9);

  machine.device_bytes = model.dense_bytes + model.neuron_bytes * 1000;
  const PlacedModel some = PlaceModel(model, machine, DensePlace::kDevice);
  EXPECT_NEAR(some.time.sync_seconds, 48 * SyncSeconds(model.hidden_size, machine), 1e-12);
  EXPECT_NEAR(SyncSeconds(model.hidden_size, machine), 2 * (10e-6 + 7168 * 4 / 64e9), 1e-12);
  EXPECT_GT(some.time.ffn_seconds, all.time.ffn_seconds);
}

TEST(PlacementModelTest, PutsDenseWeightsWhereTokensTakeLess) {
  const PlacementModel model = ModelOf("opt-30b");
  PlacementMachine machine = PcHigh();
  for (const uint64_t gib : {2, 8, 16, 24}) {
    machine.device_bytes = gib << 30;
    const double chosen = PlaceModel(model, machine, DensePlace::kAuto).time.total();
    EXPECT_LE(chosen, PlaceModel(model, machine, DensePlace::kHost).time.total());
    if (model.dense_bytes <= machine.device_bytes) {
      EXPECT_LE(chosen, PlaceModel(model, machine, DensePlace::kDevice).time.total());
    }
  }
}

TEST(PlacementModelTest, SaysWhatHasNoRoom) {
  const PlacementModel model = ModelOf("opt-66b");
  PlacementMachine machine = PcHigh();
  machine.device_bytes = uint64_t{1} << 30;
  EXPECT_THAT(ErrorOf([&] { PlaceModel(model, machine, DensePlace::kDevice); }),
              HasSubstr("device memory"));
  machine.host_bytes = uint64_t{4} << 30;
  EXPECT_THAT(ErrorOf([&] { PlaceModel(model, machine, DensePlace::kHost); }),
              HasSubstr("host memory"));
  machine.host_bytes = uint64_t{20} << 30;
  EXPECT_THAT(ErrorOf([&] { PlaceModel(model, machine, DensePlace::kAuto); }),
              HasSubstr("the neurons take"));
}

// P1's largest model in 8 GiB of a card and 16 of the host: three tiers.
TEST(PlacementModelTest, WhatFitsNowhereStaysOnFlash) {
  const PlacementModel model = ModelOf("opt-66b");
  PlacementMachine machine = PcHigh();
  machine.device_bytes = uint64_t{8} << 30;
  machine.host_bytes = uint64_t{16} << 30;
  machine.flash_bytes_per_s = 2e9;
  const PlacedModel placed = PlaceModel(model, machine, DensePlace::kHost);
  const Placement& placement = placed.placement;
  ASSERT_TRUE(placed.host_neurons);
  EXPECT_EQ(placement.device_bytes + placement.host_bytes + placed.flash_bytes, model.ffn_bytes());
  EXPECT_LE(placement.device_bytes, machine.device_bytes);
  EXPECT_LE(placement.host_bytes + model.dense_bytes + model.embedding_bytes, *machine.host_bytes);
  for (const int64_t neurons : placement.device_neurons) {
    EXPECT_EQ(neurons, placement.device_neurons.front());
  }
  // What each tier is asked for, by hand.
  const int64_t on_device = placement.device_neurons.front();
  const int64_t in_memory = on_device + *placed.host_neurons;
  const std::vector<double>& rates = model.rates.front();
  const double flash = std::accumulate(rates.begin() + in_memory, rates.end(), 0.0);
  EXPECT_NEAR(placed.flash_impact, 64 * flash, 1e-6 * flash);
  const double read = 64 * flash * static_cast<double>(model.neuron_bytes) / 2e9;
  EXPECT_NEAR(placed.time.ffn_seconds, read, 1e-6 * read) << "reading is what takes longest";
  EXPECT_GT(placed.host_time.ffn_seconds, placed.time.ffn_seconds);

  machine.flash_bytes_per_s = 1e13;
  EXPECT_LT(PlaceModel(model, machine, DensePlace::kHost).time.ffn_seconds, read / 10);
  machine.host_bytes = uint64_t{64} << 30;
  const PlacedModel roomy = PlaceModel(model, machine, DensePlace::kHost);
  EXPECT_FALSE(roomy.host_neurons);
  EXPECT_EQ(roomy.flash_bytes, 0u);
}

TEST(PlacementModelTest, RefusesRatesThatCannotBe) {
  const ModelShape shape = FindPlannedShape("opt-13b");
  EXPECT_THAT(ErrorOf([&] { PlacementModelOf(shape, DType::kQ4_0, {.active = 0}); }),
              HasSubstr("active: "));
  EXPECT_THAT(
      ErrorOf([&] { PlacementModelOf(shape, DType::kQ4_0, {.active = 0.1, .skew = 0.01}); }),
      HasSubstr("skew: "));
}

TEST(PlacementModelTest, ReadsRatesOfAProfileOfTheSameModel) {
  const GgufFile file = GgufFile::Open(SourcePath("models/hearth-stories-5m.gguf"));
  EXPECT_THAT(ErrorOf([&] { PlacementModelOf(file, nullptr); }), HasSubstr("profile: "));
  ModelProfile profile;
  profile.model_hash = 1;
  EXPECT_THAT(ErrorOf([&] { PlacementModelOf(file, &profile); }), HasSubstr("another model"));
}

}  // namespace
}  // namespace hearth
