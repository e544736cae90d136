#include "pipeline/neuron_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "pipeline/streamed_ffns.h"
#include "pipeline/test_bundles.h"

namespace hearth {
namespace {

// Counts kept the slow way.
class SlowMap {
 public:
  SlowMap(const NeuronMap& map)
      : experts_(map.num_experts()), neurons_(map.neurons()), columns_(map.num_columns()) {
    counts_.resize(static_cast<size_t>(kNumNeuronPlaces));
    for (auto& counts : counts_) {
      counts.resize(static_cast<size_t>(map.num_layers() * columns_));
    }
  }
  void Add(int64_t ffn, NeuronPlace place, int64_t neuron) {
    const int64_t in_layer = ffn % experts_ * neurons_ + neuron;
    const int64_t column = in_layer * columns_ / (experts_ * neurons_);
    ++counts_[static_cast<size_t>(place)][static_cast<size_t>(ffn / experts_ * columns_ + column)];
  }
  void Expect(const NeuronMap& map) const {
    for (const auto place : {NeuronPlace::kPinned, NeuronPlace::kCached, NeuronPlace::kRead}) {
      const auto counts = map.counts(place);
      EXPECT_EQ(std::vector<uint16_t>(counts.begin(), counts.end()),
                counts_[static_cast<size_t>(place)]);
    }
  }

 private:
  int64_t experts_, neurons_, columns_;
  std::vector<std::vector<uint16_t>> counts_;
};

TEST(NeuronMapTest, CountsWhatASlowOneCounts) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t layers = 1 + trial % 4;
    const int64_t experts = trial % 3 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 200);
    const int64_t neurons = 1 + static_cast<int64_t>(random() % 700);
    NeuronMap map(layers, experts, neurons);
    ASSERT_LE(map.num_columns(), NeuronMap::kMostColumns);
    ASSERT_GE(map.num_columns(), 1);
    map.Begin(1);
    SlowMap slow(map);
    for (int list = 0; list < 6; ++list) {
      const auto ffn = static_cast<int64_t>(random() % static_cast<uint64_t>(layers * experts));
      const auto place = static_cast<NeuronPlace>(random() % 3);
      if (list % 2 == 0) {
        const std::vector<int32_t> chosen = RandomList(neurons, random);
        map.Add(ffn, place, chosen);
        for (const int32_t neuron : chosen) slow.Add(ffn, place, neuron);
      } else {
        const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(neurons));
        map.AddRange(ffn, place, begin, neurons);
        for (int64_t n = begin; n < neurons; ++n) slow.Add(ffn, place, n);
      }
    }
    slow.Expect(map);
  }
}

TEST(NeuronMapTest, ColumnsEndWhereExpertsDo) {
  NeuronMap map(1, 12, 1000);
  EXPECT_EQ(map.num_columns(), 120);
  map.Begin(1);
  map.AddRange(5, NeuronPlace::kRead, 0, 1000);
  for (int64_t column = 0; column < 120; ++column) {
    EXPECT_EQ(map.counts(NeuronPlace::kRead)[static_cast<size_t>(column)],
              column / 10 == 5 ? 100 : 0);
  }
  EXPECT_EQ(NeuronMap(1, 1, 7).num_columns(), 7) << "a neuron each";
}

TEST(NeuronMapTest, CountsEndWhereTheyNoLongerFitAndBeginAnew) {
  NeuronMap map(1, 1, 1);
  map.Begin(70'000);
  for (int i = 0; i < 70'000; ++i) map.AddRange(0, NeuronPlace::kCached, 0, 1);
  EXPECT_EQ(map.counts(NeuronPlace::kCached)[0], 65535);
  map.Finish();
  EXPECT_TRUE(map.is_whole());
  map.Begin(1);
  EXPECT_FALSE(map.is_whole());
  EXPECT_EQ(map.counts(NeuronPlace::kCached)[0], 0);
}

using NeuronMapOfStreamTest = StreamedFfnsTest;

int64_t Total(const NeuronMap& map, NeuronPlace place) {
  const auto counts = map.counts(place);
  int64_t sum = 0;
  for (const uint16_t count : counts) sum += count;
  return sum;
}

TEST_F(NeuronMapOfStreamTest, ShowsWhereEveryListedNeuronWas) {
  for (int trial = 0; trial < 40; ++trial) {
    const TestBundles model({.layers = 1 + trial % 3,
                             .experts = 1 + trial % 2,
                             .neurons = 40 + 37 * (trial % 7),
                             .hidden = 64},
                            static_cast<uint32_t>(trial));
    const StreamPlan plan = RandomPlan(model.shape(), trial % 3 == 1);
    const StreamOptions options = {
        .pipeline = AllPipelines()[static_cast<size_t>(trial) % AllPipelines().size()]};
    StreamedFfns streamed(budget_, model.Source(model.File(budget_, 0)), plan, options);
    streamed.Fill(*compute_, {});
    NeuronMap map(model.sizes().layers, model.sizes().experts, model.sizes().neurons);
    for (int token = 0; token < 6; ++token) {
      const bool watches = token % 3 != 2;
      streamed.Watch(watches ? &map : nullptr);
      if (watches) map.Begin(1);
      const StreamCounts before = streamed.counts();
      for (int64_t layer = 0; layer < model.sizes().layers; ++layer) {
        const StreamedFfn ffn = {layer, token % model.sizes().experts, FfnActivation::kDRelu};
        const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
        const std::vector<int32_t> list = RandomList(model.sizes().neurons, random_);
        std::vector<float> out(x.size());
        streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
        ASSERT_EQ(out, Resident(model, ffn, x, list)) << "looking changes nothing";
      }
      streamed.EndToken();
      if (!watches) continue;
      StreamCounts counts = streamed.counts();
      counts -= before;
      EXPECT_EQ(Total(map, NeuronPlace::kPinned), counts.pinned);
      EXPECT_EQ(Total(map, NeuronPlace::kCached), counts.hits);
      EXPECT_EQ(Total(map, NeuronPlace::kRead), counts.misses);
    }
  }
}

}  // namespace
}  // namespace hearth
