// Streamed FFNs against the same FFNs in memory: the same bits whatever is pinned, cached, read in
// which order, by how many threads (FORMATS.md, "One order of addition"); and faults.
#include "pipeline/streamed_ffns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "kernels/dequantize.h"
#include "kernels/row_pack.h"
#include "ops/sparse_prefill.h"
#include "storage/faulty_file.h"
#include "storage/memory_file.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

struct Sizes {
  int64_t layers = 2;
  int64_t experts = 1;
  int64_t neurons = 200;
  int64_t hidden = 160;
  DType dtype = DType::kQ4_0;
};

// The bundles of a model of random weights, as they lie in a file.
class TestModel {
 public:
  explicit TestModel(const Sizes& sizes, uint32_t seed)
      : sizes_(sizes), layout_(MakeBundleLayout(sizes.dtype, sizes.hidden)), random_(seed) {
    bytes_.resize(kBundleAlignment +
                  static_cast<size_t>(sizes.layers * sizes.experts * sizes.neurons) *
                      layout_.stride);
    for (size_t at = kBundleAlignment; at < bytes_.size(); at += layout_.stride) {
      const std::span<std::byte> bundle = std::span(bytes_).subspan(at, layout_.stride);
      for (const BundleRole role : {BundleRole::kGate, BundleRole::kUp, BundleRole::kDown}) {
        WriteRow(bundle.subspan(layout_.Part(role).offset));
      }
      SetBundleChecks(layout_, bundle);
    }
  }

  const Sizes& sizes() const { return sizes_; }
  StreamShape shape() const {
    return BundleSource::ShapeOf(layout_, sizes_.layers * sizes_.experts, sizes_.neurons);
  }
  const BundleLayout& layout() const { return layout_; }
  std::vector<std::byte>& bytes() { return bytes_; }

  std::unique_ptr<AsyncFile> File(Budget& budget, uint64_t completion_seed) const {
    Buffer copy(budget, "test file", bytes_.size());
    std::memcpy(copy.data(), bytes_.data(), bytes_.size());
    return MakeMemoryFile("model.gguf", std::move(copy),
                          {.alignment_bytes = 512,
                           .memory_alignment_bytes = 512,
                           .completion_seed = completion_seed});
  }

  BundleSource Source(std::unique_ptr<AsyncFile> file) const {
    BundleSource source{.file = std::move(file),
                        .layout = layout_,
                        .hidden_size = sizes_.hidden,
                        .num_layers = sizes_.layers,
                        .num_experts = sizes_.experts,
                        .neurons = sizes_.neurons};
    for (int64_t layer = 0; layer < sizes_.layers; ++layer) {
      source.layer_offsets.push_back(OffsetOf(layer * sizes_.experts, 0));
    }
    return source;
  }

  uint64_t OffsetOf(int64_t ffn, int64_t neuron) const {
    return kBundleAlignment + static_cast<uint64_t>(ffn * sizes_.neurons + neuron) * layout_.stride;
  }

  // The FFN as it would lie in memory.
  FfnNeurons Resident(const StreamedFfn& ffn) const {
    const auto rows = [&](BundleRole role) {
      const BundlePart& part = layout_.Part(role);
      return RowsView{.data = bytes_.data() + OffsetOf(ffn.layer * sizes_.experts + ffn.expert, 0) +
                              part.offset,
                      .dtype = part.dtype,
                      .stride = layout_.stride,
                      .cols = sizes_.hidden,
                      .rows = sizes_.neurons};
    };
    return {rows(BundleRole::kGate), rows(BundleRole::kUp), rows(BundleRole::kDown), ffn.activation,
            ffn.threshold};
  }

 private:
  void WriteRow(std::span<std::byte> out) {
    std::vector<float> row(static_cast<size_t>(sizes_.hidden));
    std::normal_distribution<float> normal(0, 0.1f);
    for (float& w : row) w = normal(random_);
    std::vector<std::byte> blocks(RowBytes(sizes_.dtype, row.size()));
    kernels::Convert(DType::kF32, reinterpret_cast<const std::byte*>(row.data()), sizes_.hidden,
                     sizes_.dtype, blocks.data());
    if (HasRowGroups(sizes_.dtype)) {
      kernels::PackRow(sizes_.dtype, blocks.data(), sizes_.hidden, out.data());
    } else {
      std::memcpy(out.data(), blocks.data(), blocks.size());
    }
  }

  Sizes sizes_;
  BundleLayout layout_;
  std::mt19937 random_;
  std::vector<std::byte> bytes_;
};

std::vector<float> RandomFloats(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Neurons of a token: the first ones more often, as in a packed file.
std::vector<int32_t> RandomList(int64_t neurons, std::mt19937& random) {
  std::vector<int32_t> list;
  const double share = std::uniform_real_distribution<double>(0, 1)(random);
  for (int64_t n = 0; n < neurons; ++n) {
    const double rate = share * (1 - 0.8 * static_cast<double>(n) / static_cast<double>(neurons));
    if (std::bernoulli_distribution(rate)(random)) list.push_back(static_cast<int32_t>(n));
  }
  return list;
}

class StreamedFfnsTest : public ::testing::Test {
 protected:
  StreamedFfnsTest() : compute_("auto", 3) {}

  std::vector<float> Resident(const TestModel& model, const StreamedFfn& ffn,
                              const std::vector<float>& x,
                              std::optional<std::span<const int32_t>> list,
                              bool skip_silent = true) {
    SparseFfn op(budget_, model.sizes().hidden, model.sizes().neurons);
    std::vector<float> out(x.size());
    counts_ = op.Activate(compute_, model.Resident(ffn), x.data(), list, skip_silent);
    op.AddDown(compute_, model.Resident(ffn), out.data());
    fired_.clear();
    op.ListFired(fired_);
    return out;
  }

  StreamPlan RandomPlan(const StreamShape& shape, bool holds_gates = false) {
    const auto pick = [&](int64_t from, int64_t to) {
      return std::uniform_int_distribution<int64_t>(from, to)(random_);
    };
    StreamPlan plan;
    plan.holds_gates = holds_gates;
    plan.pinned_neurons = std::min(64 * pick(0, shape.neurons / 64 + 1), shape.neurons);
    plan.cache_slots =
        pick(1, std::max<int64_t>((shape.neurons - plan.pinned_neurons) * shape.num_ffns, 1));
    plan.range_neurons = 64 * pick(1, 3);
    plan.range_buffers = pick(2, 4);
    plan.queue_depth = static_cast<int>(pick(1, 20));
    return plan;
  }

  Budget budget_;
  Compute compute_;
  std::mt19937 random_{7};
  // Of the last Resident.
  SparseFfnCounts counts_;
  std::vector<int32_t> fired_;
};

TEST_F(StreamedFfnsTest, AnyPlanScheduleAndThreadCountGivesTheBitsOfMemory) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16}) {
    for (int trial = 0; trial < 40; ++trial) {
      const TestModel model({.layers = 1 + trial % 3,
                             .experts = 1 + trial % 2,
                             .neurons = 40 + 37 * (trial % 7),
                             .hidden = 32 * (1 + trial % 20),
                             .dtype = dtype},
                            static_cast<uint32_t>(trial));
      Compute compute("auto", 1 + trial % 4);
      const StreamOptions options = {
          .policy = AllCachePolicies()[static_cast<size_t>(trial) % AllCachePolicies().size()],
          .pipeline = AllPipelines()[static_cast<size_t>(trial) % AllPipelines().size()]};
      StreamedFfns streamed(
          budget_, model.Source(model.File(budget_, static_cast<uint64_t>(trial % 3 * trial))),
          RandomPlan(model.shape(), trial % 3 == 1), options);
      streamed.Fill(compute, {});
      for (int token = 0; token < 6; ++token) {
        streamed.BeginPass();
        for (int64_t layer = 0; layer < model.sizes().layers; ++layer) {
          const StreamedFfn ffn = {layer, token % model.sizes().experts, FfnActivation::kDRelu};
          const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
          const std::vector<int32_t> list = RandomList(model.sizes().neurons, random_);
          std::vector<float> out(x.size(), 99.0f);
          streamed.Run(compute, ffn, x.data(), list, true, out.data());
          ASSERT_EQ(out, Resident(model, ffn, x, list)) << "trial " << trial;
        }
        streamed.EndToken();
      }
    }
  }
}

constexpr FfnActivation kActivations[] = {FfnActivation::kRelu, FfnActivation::kFatRelu,
                                          FfnActivation::kDRelu, FfnActivation::kThresholdedSilu,
                                          FfnActivation::kSilu};

TEST_F(StreamedFfnsTest, GatesInMemoryChooseTheNeuronsOfEveryActivation) {
  for (int trial = 0; trial < 80; ++trial) {
    const TestModel model({.experts = 1 + trial % 2,
                           .neurons = 60 + 53 * (trial % 5),
                           .hidden = 32 * (1 + trial % 19),
                           .dtype = trial % 4 == 3 ? DType::kF16 : DType::kQ4_0},
                          static_cast<uint32_t>(trial));
    Compute compute("auto", 1 + trial % 4);
    StreamedFfns streamed(
        budget_, model.Source(model.File(budget_, static_cast<uint64_t>(trial % 3 * trial))),
        RandomPlan(model.shape(), true),
        {.pipeline = AllPipelines()[static_cast<size_t>(trial) % AllPipelines().size()]});
    streamed.Fill(compute, {});
    for (int token = 0; token < 5; ++token) {
      for (const FfnActivation activation : kActivations) {
        const StreamedFfn ffn = {token % 2, trial % model.sizes().experts, activation, 0.1f};
        const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
        std::vector<float> out(x.size(), 99.0f);
        const bool skips = token % 3 != 2 && CanSkipNeurons(activation);
        const SparseFfnCounts counts =
            streamed.Run(compute, ffn, x.data(), std::nullopt, skips, out.data());
        ASSERT_EQ(out, Resident(model, ffn, x, std::nullopt, skips)) << "trial " << trial;
        EXPECT_EQ(counts.gate, counts_.gate);
        EXPECT_EQ(counts.up, counts_.up);
        EXPECT_EQ(counts.active, counts_.active);
      }
      streamed.EndToken();
    }
  }
}

TEST_F(StreamedFfnsTest, PromptsInRangesAreTheBitsOfMemory) {
  for (int trial = 0; trial < 12; ++trial) {
    const TestModel model({.layers = 3,
                           .experts = 1 + trial % 2,
                           .neurons = 300 + 41 * trial,
                           .dtype = trial % 4 < 2 ? DType::kQ4_0 : DType::kF16},
                          5);
    StreamedFfns streamed(budget_, model.Source(model.File(budget_, 3)),
                          RandomPlan(model.shape(), trial % 3 == 0), {});
    streamed.Fill(compute_, {});
    const int64_t tokens = 9 + trial, hidden = model.sizes().hidden;
    SparsePrefill op(budget_, {tokens, hidden, model.sizes().neurons, 3});
    MatMulInput input(budget_, tokens, hidden);
    for (int64_t layer = 0; layer < 3; ++layer) {
      const StreamedFfn ffn = {layer, trial % model.sizes().experts, FfnActivation::kDRelu};
      std::vector<float> x = RandomFloats(tokens * hidden, random_);
      input.Set({x.data(), tokens, hidden, hidden});
      std::vector<float> out(x.size(), 99.0f), expected(x.size());
      op.Run(compute_, model.Resident(ffn), input, {}, {expected.data(), tokens, hidden, hidden});
      int64_t next = 0;
      streamed.ForEachRange(compute_, ffn, [&](int64_t first, const FfnNeurons& rows) {
        EXPECT_EQ(first, next);
        next += rows.gate.rows;
        op.RunRange(compute_, rows, input, {first, first == 0, next == model.sizes().neurons}, {},
                    {out.data(), tokens, hidden, hidden});
      });
      EXPECT_EQ(next, model.sizes().neurons);
      ASSERT_EQ(out, expected) << "trial " << trial << " layer " << layer;
    }
  }
}

TEST_F(StreamedFfnsTest, CountsWhatIsPinnedFoundAndRead) {
  const TestModel model({.layers = 1, .neurons = 256}, 1);
  StreamedFfns streamed(
      budget_, model.Source(model.File(budget_, 0)),
      {.pinned_neurons = 64, .cache_slots = 32, .range_neurons = 64, .range_buffers = 2},
      {.policy = CachePolicyKind::kLru});
  streamed.Fill(compute_, {});
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  std::vector<float> out(x.size());
  // Pinned, in the cache from the start, and on storage.
  const std::vector<int32_t> list = {3, 63, 64, 95, 96, 255};
  streamed.Run(compute_, ffn, x.data(), list, true, out.data());
  EXPECT_EQ(streamed.counts().pinned, 2);
  EXPECT_EQ(streamed.counts().hits, 2);
  EXPECT_EQ(streamed.counts().misses, 2);
  EXPECT_EQ(streamed.counts().bytes_read, 2 * model.shape().bundle_bytes);
  streamed.Run(compute_, ffn, x.data(), list, true, out.data());
  EXPECT_EQ(streamed.counts().misses, 2) << "what was read is in the cache";
}

TEST_F(StreamedFfnsTest, ReadsHalvesOfWhatFiresWhereGatesAreInMemory) {
  const TestModel model({.layers = 1, .neurons = 256}, 1);
  StreamedFfns streamed(budget_, model.Source(model.File(budget_, 0)),
                        {.holds_gates = true,
                         .pinned_neurons = 64,
                         .cache_slots = 32,
                         .range_neurons = 64,
                         .range_buffers = 2},
                        {});
  streamed.Fill(compute_, {});
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  std::vector<float> out(x.size());
  streamed.Run(compute_, ffn, x.data(), std::nullopt, true, out.data());
  Resident(model, ffn, x, std::nullopt);
  const auto below = [&](int32_t neuron) {
    return std::lower_bound(fired_.begin(), fired_.end(), neuron) - fired_.begin();
  };
  EXPECT_EQ(streamed.counts().neurons, std::ssize(fired_));
  EXPECT_EQ(streamed.counts().pinned, below(64));
  EXPECT_EQ(streamed.counts().hits, below(96) - below(64));
  EXPECT_EQ(streamed.counts().misses, std::ssize(fired_) - below(96));
  EXPECT_EQ(streamed.counts().reads, streamed.counts().misses);
  EXPECT_EQ(streamed.counts().bytes_read,
            static_cast<uint64_t>(streamed.counts().misses) * model.shape().half_bytes);
}

TEST_F(StreamedFfnsTest, MatricesReadTheHalvesOfABundleOneAfterTheOther) {
  const TestModel model({.layers = 1, .neurons = 128}, 1);
  StreamedFfns streamed(budget_, model.Source(model.File(budget_, 0)),
                        {.cache_slots = 1, .range_neurons = 64, .range_buffers = 2},
                        {.pipeline = PipelineKind::kMatrix});
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  std::vector<float> out(x.size());
  streamed.Run(compute_, ffn, x.data(), std::vector<int32_t>{3, 63, 64}, true, out.data());
  EXPECT_EQ(streamed.counts().misses, 3);
  EXPECT_EQ(streamed.counts().reads, 6);
  EXPECT_EQ(streamed.counts().bytes_read, 3 * model.shape().bundle_bytes);
}

// With and without gates in memory.
class StreamedFfnFaults : public StreamedFfnsTest,
                          public ::testing::WithParamInterface<std::tuple<PipelineKind, bool>> {
 protected:
  StreamOptions Options() const { return {.pipeline = std::get<0>(GetParam())}; }
  bool HoldsGates() const { return std::get<1>(GetParam()); }
};

TEST_P(StreamedFfnFaults, AFailedReadFailsOneTokenOnly) {
  const TestModel model({.layers = 1, .neurons = 256}, 1);
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
      streamed.Fill(compute_, {});
      const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
      const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
      std::vector<int32_t> list;
      for (int32_t n = 30; n < 70; ++n) list.push_back(n);
      std::vector<float> out(x.size());
      try {
        streamed.Run(compute_, ffn, x.data(), list, true, out.data());
        ADD_FAILURE() << "a fault went unnoticed";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("model.gguf"));
        EXPECT_EQ(error.code(), kind == FaultKind::kFlip ? ErrorCode::kCorrupt : ErrorCode::kIo);
      }
      streamed.Run(compute_, ffn, x.data(), list, true, out.data());
      EXPECT_EQ(out, Resident(model, ffn, x, list));
    }
  }
}

TEST_P(StreamedFfnFaults, RandomFaultsGiveAnErrorOrTheRightBits) {
  const TestModel model({.layers = 2, .neurons = 200}, 1);
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
    if (HoldsGates()) streamed.Fill(compute_, {});
    for (int token = 0; token < 8; ++token) {
      const StreamedFfn ffn = {token % 2, 0, FfnActivation::kDRelu};
      const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
      const std::vector<int32_t> list = RandomList(200, random_);
      std::vector<float> out(x.size());
      try {
        streamed.Run(compute_, ffn, x.data(), list, true, out.data());
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
  TestModel model({.layers = 1, .neurons = 256}, 1);
  model.bytes()[model.OffsetOf(0, 200) + 3] ^= std::byte{1};
  StreamedFfns streamed(
      budget_, model.Source(model.File(budget_, 0)),
      {.pinned_neurons = 64, .cache_slots = 10, .range_neurons = 64, .range_buffers = 2}, {});
  streamed.Fill(compute_, {});
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  for (int repeat = 0; repeat < 2; ++repeat) {
    try {
      streamed.ForEachRange(compute_, ffn, [](int64_t, const FfnNeurons&) {});
      ADD_FAILURE() << "damage went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_THAT(error.what(), HasSubstr("neuron 200 of blk.0.ffn_bundle"));
    }
  }
}

TEST_F(StreamedFfnsTest, ChargesWhatItSays) {
  const TestModel model({}, 1);
  for (const bool holds_gates : {false, true}) {
    const StreamPlan plan = {.holds_gates = holds_gates,
                             .pinned_neurons = 64,
                             .cache_slots = 10,
                             .range_neurons = 64,
                             .range_buffers = 2};
    Budget budget;
    auto file = model.File(budget, 0);
    const uint64_t before = budget.used_bytes();
    const StreamedFfns streamed(budget, model.Source(std::move(file)), plan, {});
    EXPECT_EQ(budget.used_bytes() - before,
              StreamedFfns::ChargedBytes(model.shape(), plan, model.sizes().hidden, {}));
    EXPECT_EQ(budget.Ledger().count("gates"), holds_gates ? 1 : 0);
  }
}

}  // namespace
}  // namespace hearth
