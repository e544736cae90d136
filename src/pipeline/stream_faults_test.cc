// Reads of streamed FFNs that fail or bring what was not written: an error that says so, and
// nothing that outlives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "pipeline/test_bundles.h"
#include "storage/async/faulty_file.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

// With and without gates in memory.
class StreamedFfnFaults : public StreamedFfnsTest,
                          public ::testing::WithParamInterface<std::tuple<PipelineKind, bool>> {
 protected:
  StreamOptions Options() const { return {.pipeline = std::get<0>(GetParam())}; }
  bool HoldsGates() const { return std::get<1>(GetParam()); }
};

TEST_P(StreamedFfnFaults, AFailedReadFailsOneTokenOnly) {
  const TestBundles model({.layers = 1, .neurons = 256}, 1);
  const StreamPlan plan = {
      .holds_gates = HoldsGates(), .cache_slots = 40, .range_neurons = 64, .range_buffers = 2};
  // In one read what starts in the cache, or in four the gates of all.
  const uint64_t reads_of_fill = HoldsGates() ? 4 : 1;
  for (const FaultKind kind : {FaultKind::kError, FaultKind::kShortRead, FaultKind::kFlip}) {
    // The gate half of matrices is read first, then their other half.
    for (const uint64_t nth_read : {uint64_t{6}, uint64_t{36}}) {
      if (nth_read == 36 && (HoldsGates() || Options().pipeline != PipelineKind::kMatrix)) continue;
      Budget budget;
      // The 30th byte of a bundle belongs to its gate, that of the other half to up.
      auto file = std::make_unique<FaultyFile>(
          model.File(budget, 2),
          FaultScript{{.kind = kind, .nth_read = reads_of_fill + nth_read, .byte = 30}});
      StreamedFfns streamed(budget, model.Source(std::move(file)), plan, Options());
      streamed.Fill(*compute_, {});
      const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
      const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
      std::vector<int32_t> list;
      for (int32_t n = 30; n < 70; ++n) list.push_back(n);
      std::vector<float> out(x.size());
      try {
        streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
        ADD_FAILURE() << "a fault went unnoticed";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("model.gguf"));
        EXPECT_EQ(error.code(), kind == FaultKind::kFlip ? ErrorCode::kCorrupt : ErrorCode::kIo);
      }
      streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
      EXPECT_EQ(out, Resident(model, ffn, x, list));
    }
  }
}

TEST_P(StreamedFfnFaults, RandomFaultsGiveAnErrorOrTheRightBits) {
  const TestBundles model({.layers = 2, .neurons = 200}, 1);
  int failed = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Budget budget;
    const FaultRates rates = {
        .error = 0.004, .short_read = 0.004, .delay = 0.02, .flip = 0.004, .max_delay_ns = 100000};
    FaultScript script = RandomFaultScript(seed, 4000, rates);
    // The reads of Fill, where it reads gates.
    std::erase_if(script, [](const Fault& fault) { return fault.nth_read < 8; });
    auto file = std::make_unique<FaultyFile>(model.File(budget, seed), std::move(script));
    const StreamPlan plan = {.holds_gates = HoldsGates(),
                             .pinned_neurons = 0,
                             .cache_slots = 50,
                             .range_neurons = 64,
                             .range_buffers = 2};
    StreamedFfns streamed(budget, model.Source(std::move(file)), plan, Options());
    if (HoldsGates()) streamed.Fill(*compute_, {});
    for (int token = 0; token < 8; ++token) {
      const StreamedFfn ffn = {token % 2, 0, FfnActivation::kDRelu};
      const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
      const std::vector<int32_t> list = RandomList(200, random_);
      std::vector<float> out(x.size());
      try {
        streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
      } catch (const Error&) {
        ++failed;
        continue;
      }
      ASSERT_EQ(out, Resident(model, ffn, x, list)) << seed;
    }
  }
  EXPECT_GT(failed, 0);
}

INSTANTIATE_TEST_SUITE_P(Pipelines, StreamedFfnFaults,
                         ::testing::Combine(::testing::ValuesIn(AllPipelines().begin(),
                                                                AllPipelines().end()),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(PipelineName(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) ? "_gates" : "_bundles");
                         });

TEST_F(StreamedFfnsTest, DamageFoundInSequentialReadsIsNamed) {
  TestBundles model({.layers = 1, .neurons = 256}, 1);
  model.bytes()[model.OffsetOf(0, 200) + 3] ^= std::byte{1};
  StreamedFfns streamed(
      budget_, model.Source(model.File(budget_, 0)),
      {.pinned_neurons = 64, .cache_slots = 10, .range_neurons = 64, .range_buffers = 2}, {});
  streamed.Fill(*compute_, {});
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  for (const bool arriving : {false, true, false, true}) {
    try {
      if (arriving) {
        streamed.ForEachArriving(*compute_, ffn,
                                 [](int64_t, const FfnNeurons& rows, const NeuronsArrive* arrive) {
                                   if (arrive != nullptr) (*arrive)(0, rows.up.rows);
                                 });
      } else {
        streamed.ForEachRange(*compute_, ffn, RangeRows::kInOrder,
                              [](int64_t, const FfnNeurons&) {});
      }
      ADD_FAILURE() << "damage went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_THAT(error.what(), HasSubstr("neuron 200 of blk.0.ffn_bundle"));
    }
  }
}

}  // namespace
}  // namespace hearth
