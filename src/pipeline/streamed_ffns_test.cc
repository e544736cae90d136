// Streamed FFNs against the same FFNs in memory: the same bits whatever is pinned, cached, read in
// which order, by how many threads (docs/architecture.md, "One order of addition").
#include "pipeline/streamed_ffns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/sparse_prefill.h"
#include "pipeline/bundle_rows.h"
#include "pipeline/test_bundles.h"

namespace hearth {
namespace {

TEST_F(StreamedFfnsTest, AnyPlanScheduleAndThreadCountGivesTheBitsOfMemory) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16}) {
    for (int trial = 0; trial < 40; ++trial) {
      const TestBundles model({.layers = 1 + trial % 3,
                               .experts = 1 + trial % 2,
                               .neurons = 40 + 37 * (trial % 7),
                               .hidden = 32 * (1 + trial % 20),
                               .dtype = dtype,
                               .kind = KindOfTrial(trial)},
                              static_cast<uint32_t>(trial));
      UseIsa(static_cast<size_t>(trial));
      Compute compute(isa_, 1 + trial % 4);
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
    const TestBundles model({.experts = 1 + trial % 2,
                             .neurons = 60 + 53 * (trial % 5),
                             .hidden = 32 * (1 + trial % 19),
                             .dtype = trial % 4 == 3 ? DType::kF16 : DType::kQ4_0,
                             .kind = KindOfTrial(trial / 4)},
                            static_cast<uint32_t>(trial));
    UseIsa(static_cast<size_t>(trial));
    Compute compute(isa_, 1 + trial % 4);
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

TEST_F(StreamedFfnsTest, PromptsAndTokensInRangesAreTheBitsOfMemory) {
  int64_t anywhere = 0;
  for (int trial = 0; trial < 12; ++trial) {
    const TestBundles model({.layers = 3,
                             .experts = 1 + trial % 2,
                             .neurons = 300 + 41 * trial,
                             .dtype = trial % 4 < 2 ? DType::kQ4_0 : DType::kF16,
                             .kind = KindOfTrial(trial)},
                            5);
    StreamedFfns streamed(budget_, model.Source(model.File(budget_, 3)),
                          RandomPlan(model.shape(), trial % 3 == 0), {});
    streamed.Fill(*compute_, {});
    const auto spare = reinterpret_cast<uintptr_t>(streamed.store().SpareSlots().data());
    EXPECT_EQ(spare % StreamPlan::kPageBytes, 0) << "trial " << trial;
    const int64_t tokens = 9 + trial, hidden = model.sizes().hidden;
    SparsePrefill op(budget_, {tokens, hidden, model.sizes().neurons, 3});
    SparseFfn one(budget_, hidden, model.sizes().neurons);
    MatMulInput input(budget_, tokens, hidden);
    for (int64_t layer = 0; layer < 3; ++layer) {
      const StreamedFfn ffn = {layer, trial % model.sizes().experts, FfnActivation::kDRelu};
      std::vector<float> x = RandomFloats(tokens * hidden, random_);
      input.Set({x.data(), tokens, hidden, hidden});
      std::vector<float> out(x.size(), 99.0f), expected(x.size());
      op.Run(*compute_, model.Resident(ffn), input, {}, {expected.data(), tokens, hidden, hidden});
      int64_t next = 0;
      const auto visit = [&](int64_t first, const FfnNeurons& rows, const NeuronsArrive* arrive) {
        EXPECT_EQ(first, next);
        next += rows.gate.rows;
        op.RunRange(*compute_, rows, input,
                    {first, first == 0, next == model.sizes().neurons, arrive}, {},
                    {out.data(), tokens, hidden, hidden});
      };
      streamed.ForEachArriving(*compute_, ffn, visit);
      EXPECT_EQ(next, model.sizes().neurons);
      ASSERT_EQ(out, expected) << "trial " << trial << " layer " << layer;
      // The same with rows that all lie in order.
      next = 0;
      std::fill(out.begin(), out.end(), 99.0f);
      streamed.ForEachRange(
          *compute_, ffn, RangeRows::kInOrder,
          [&](int64_t first, const FfnNeurons& rows) { visit(first, rows, nullptr); });
      ASSERT_EQ(out, expected) << "trial " << trial << " layer " << layer;
      // A token by itself, with rows wherever they lie.
      one.Activate(*compute_, model.Resident(ffn), x.data(), std::nullopt, true);
      one.AddDown(*compute_, model.Resident(ffn), expected.data());
      streamed.ForEachRange(*compute_, ffn, RangeRows::kAnywhere,
                            [&](int64_t first, const FfnNeurons& rows) {
                              anywhere += rows.slots != nullptr ? 1 : 0;
                              one.Activate(*compute_, rows, x.data(), std::nullopt, true);
                              one.AddDown(*compute_, rows, out.data(), first > 0);
                            });
      ASSERT_EQ(out, expected) << "trial " << trial << " layer " << layer;
    }
  }
  EXPECT_GT(anywhere, 0);
}

TEST_F(StreamedFfnsTest, CountsWhatIsPinnedFoundAndRead) {
  const TestBundles model({.layers = 1, .neurons = 256}, 1);
  StreamedFfns streamed(
      budget_, model.Source(model.File(budget_, 0)),
      {.pinned_neurons = 64, .cache_slots = 32, .range_neurons = 64, .range_buffers = 2},
      {.policy = CachePolicyKind::kLru});
  streamed.Fill(*compute_, {});
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  std::vector<float> out(x.size());
  // Pinned, in the cache from the start, and on storage.
  const std::vector<int32_t> list = {3, 63, 64, 95, 96, 255};
  streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
  EXPECT_EQ(streamed.counts().pinned, 2);
  EXPECT_EQ(streamed.counts().hits, 2);
  EXPECT_EQ(streamed.counts().misses, 2);
  EXPECT_EQ(streamed.counts().bytes_read, 2 * model.shape().bundle_bytes);
  streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
  EXPECT_EQ(streamed.counts().misses, 2) << "what was read is in the cache";
}

TEST_F(StreamedFfnsTest, RangesCopyTheLongRunsThatTheCacheHas) {
  const TestBundles model({.layers = 1, .neurons = 256}, 1);
  const uint64_t bundle = model.shape().bundle_bytes;
  // Shorter runs are read.
  const auto shortest = static_cast<int64_t>((uint64_t{32} << 10) / bundle);
  for (const int64_t cached : {shortest, shortest - 1}) {
    StreamedFfns streamed(
        budget_, model.Source(model.File(budget_, 0)),
        {.pinned_neurons = 64, .cache_slots = cached, .range_neurons = 64, .range_buffers = 2}, {});
    streamed.Fill(*compute_, {});
    int64_t neurons = 0;
    streamed.ForEachRange(
        *compute_, {0, 0, FfnActivation::kRelu}, RangeRows::kInOrder,
        [&](int64_t first, const FfnNeurons& rows) {
          EXPECT_EQ(rows.slots, nullptr);
          ExpectNeurons(rows, model.Resident({0, 0, FfnActivation::kRelu}), first);
          neurons += rows.up.rows;
        });
    EXPECT_EQ(neurons, 256);
    const int64_t copied = cached >= shortest ? cached : 0;
    EXPECT_EQ(streamed.range_counts().hits, copied);
    EXPECT_EQ(streamed.range_counts().misses, 192 - copied);
    EXPECT_EQ(streamed.range_counts().bytes_read, static_cast<uint64_t>(192 - copied) * bundle);
  }
}

TEST_F(StreamedFfnsTest, RangesThatArriveGoOnOverWhatTheCacheHas) {
  const TestBundles model({.layers = 1, .neurons = 512}, 1);
  const auto ranges_of = [&](int64_t cached) {
    StreamedFfns streamed(
        budget_, model.Source(model.File(budget_, 0)),
        {.pinned_neurons = 64, .cache_slots = cached, .range_neurons = 64, .range_buffers = 2}, {});
    streamed.Fill(*compute_, {});
    EXPECT_TRUE(BundleRows(streamed.store()).computes_in_slots());
    std::vector<int64_t> ranges;
    const auto visit = [&](int64_t, const FfnNeurons& rows, const NeuronsArrive* arrive) {
      if (arrive != nullptr) (*arrive)(0, rows.up.rows);
      ranges.push_back(rows.up.rows);
    };
    streamed.ForEachArriving(*compute_, {0, 0, FfnActivation::kRelu}, visit);
    const StreamCounts& counts = streamed.range_counts();
    EXPECT_EQ(counts.pinned, 64);
    EXPECT_EQ(counts.hits, cached);
    EXPECT_EQ(counts.misses, 448 - cached);
    EXPECT_EQ(counts.bytes_read, static_cast<uint64_t>(counts.misses) * model.shape().bundle_bytes);
    return ranges;
  };
  using testing::ElementsAre;
  // Behind what is pinned, 200 cached neurons and 56 of 248 others to the end of a batch.
  EXPECT_THAT(ranges_of(200), ElementsAre(64, 256, 64, 64, 64));
  EXPECT_THAT(ranges_of(448), ElementsAre(64, 448)) << "all are cached: nothing is read";
}

TEST_F(StreamedFfnsTest, RangesAreRightWhateverTheCacheHas) {
  // Six neurons are 32 KiB: runs of the cache are shorter and longer than that.
  const TestBundles model({.layers = 2, .neurons = 700, .hidden = 3200}, 1);
  int64_t copied = 0;
  for (int trial = 0; trial < 20; ++trial) {
    StreamPlan plan = RandomPlan(model.shape());
    plan.pinned_neurons = std::min<int64_t>(plan.pinned_neurons, 256);
    StreamedFfns streamed(budget_, model.Source(model.File(budget_, static_cast<uint64_t>(trial))),
                          plan, {.policy = CachePolicyKind::kLru});
    streamed.Fill(*compute_, {});
    const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
    std::vector<float> out(x.size());
    for (int64_t layer = 0; layer < 2; ++layer) {
      // Runs of neurons and gaps of up to sixteen.
      std::vector<int32_t> list;
      std::uniform_int_distribution<int32_t> length(1, 16);
      for (int32_t at = length(random_); at < 700; at += length(random_)) {
        for (int32_t end = at + length(random_); at < std::min(end, 700); ++at) list.push_back(at);
      }
      streamed.Run(*compute_, {layer, 0, FfnActivation::kRelu}, x.data(), list, true, out.data());
    }
    for (int64_t pass = 0; pass < 6; ++pass) {
      const StreamedFfn ffn = {pass % 2, 0, FfnActivation::kRelu};
      const FfnNeurons expected = model.Resident(ffn);
      // Both ways, also one where the other has read ahead.
      if (random_() % 2 == 0) {
        streamed.ForEachRange(
            *compute_, ffn, RangeRows::kInOrder,
            [&](int64_t first, const FfnNeurons& rows) { ExpectNeurons(rows, expected, first); });
        continue;
      }
      streamed.ForEachArriving(
          *compute_, ffn, [&](int64_t first, const FfnNeurons& rows, const NeuronsArrive* arrive) {
            if (arrive != nullptr) (*arrive)(0, rows.up.rows);
            ExpectNeurons(rows, expected, first);
          });
    }
    copied += streamed.range_counts().hits;
    const StreamCounts& counts = streamed.range_counts();
    EXPECT_EQ(counts.pinned + counts.hits + counts.misses, counts.neurons);
    // More than that where the other way had read ahead.
    EXPECT_GE(counts.bytes_read, static_cast<uint64_t>(counts.misses) * model.shape().bundle_bytes);
  }
  EXPECT_GT(copied, 0);
}

// A prompt that ended early has read ahead into the next FFN, and remembers what the cache had of
// it.
TEST_F(StreamedFfnsTest, RangesForgetWhereNeuronsLayBeforeAPageWasTaken) {
  const TestBundles model({.layers = 2, .neurons = 256}, 1);
  StreamPlan plan = {.cache_slots = 64, .range_neurons = 64, .range_buffers = 2};
  plan.lent = {.count = 1, .page_bytes = 448 * model.shape().bundle_bytes};
  StreamedFfns streamed(budget_, model.Source(model.File(budget_, 0)), plan,
                        {.policy = CachePolicyKind::kLru});
  streamed.Fill(*compute_, {});
  const auto pass = [&](int64_t layer) {
    const StreamedFfn ffn = {layer, 0, FfnActivation::kRelu};
    streamed.ForEachRange(*compute_, ffn, RangeRows::kInOrder,
                          [&](int64_t first, const FfnNeurons& rows) {
                            ExpectNeurons(rows, model.Resident(ffn), first);
                          });
  };
  pass(0);
  EXPECT_EQ(streamed.range_counts().hits, 256) << "all neurons are cached";
  streamed.kv_slots().Take(0);
  std::memset(streamed.kv_slots().pages(), 0xff, plan.lent.page_bytes);
  pass(1);
  EXPECT_GT(streamed.range_counts().misses, 0);
}

TEST_F(StreamedFfnsTest, ReadsHalvesOfWhatFiresWhereGatesAreInMemory) {
  const TestBundles model({.layers = 1, .neurons = 256}, 1);
  StreamedFfns streamed(budget_, model.Source(model.File(budget_, 0)),
                        {.holds_gates = true,
                         .pinned_neurons = 64,
                         .cache_slots = 32,
                         .range_neurons = 64,
                         .range_buffers = 2},
                        {});
  streamed.Fill(*compute_, {});
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  std::vector<float> out(x.size());
  streamed.Run(*compute_, ffn, x.data(), std::nullopt, true, out.data());
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

// Each a read of its own; a neuron is ready when the last of its own has come.
TEST_F(StreamedFfnsTest, BundlesAreReadInPieces) {
  const TestBundles model({.layers = 1, .neurons = 128}, 1);
  const uint64_t split = model.layout().split, stride = model.layout().stride;
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  std::vector<int32_t> list(100);
  std::iota(list.begin(), list.end(), 3);
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  for (const bool gates_first : {false, true}) {
    for (const uint32_t piece : {512, 1024, 1 << 20}) {
      StreamedFfns streamed(
          budget_, model.Source(model.File(budget_, 0)),
          {.cache_slots = 128, .range_neurons = 64, .range_buffers = 2},
          {.lookahead = Lookahead::kOff, .gates_first = gates_first, .piece_bytes = piece});
      std::vector<float> out(x.size());
      streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
      EXPECT_EQ(out, Resident(model, ffn, x, list));
      const auto pieces_of = [&](uint64_t bytes) {
        return static_cast<int64_t>((bytes + piece - 1) / piece);
      };
      const int64_t fired = std::ssize(fired_);
      const StreamCounts counts = streamed.counts();
      EXPECT_EQ(counts.reads, gates_first
                                  ? 100 * pieces_of(split) + fired * pieces_of(stride - split)
                                  : 100 * pieces_of(stride));
      EXPECT_EQ(counts.bytes_read,
                gates_first ? 100 * split + static_cast<uint64_t>(fired) * (stride - split)
                            : 100 * stride);
    }
  }
}

TEST_F(StreamedFfnsTest, ThreadsTakeClustersOfThePlansSize) {
  const TestBundles model({.layers = 1, .neurons = 256}, 1);
  compute_.emplace(isa_, 1);
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  std::vector<int32_t> list(256);
  std::iota(list.begin(), list.end(), 0);
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  for (const int64_t size : {1, 7, 64, 256}) {
    StreamedFfns streamed(budget_, model.Source(model.File(budget_, 0)),
                          {.pinned_neurons = 256,
                           .cache_slots = 1,
                           .range_neurons = 64,
                           .range_buffers = 2,
                           .clusters = {size, size}},
                          {});
    streamed.Fill(*compute_, {});
    std::vector<float> out(x.size());
    streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
    EXPECT_EQ(out, Resident(model, ffn, x, list));
    EXPECT_EQ(streamed.counts().clusters, (256 + size - 1) / size);
  }
}

// Of what is missing the gates, and the rest of what fires; what is cached of silent neurons is
// their gates, which need no read when they are listed again.
TEST_F(StreamedFfnsTest, TheRestIsReadOfWhatFires) {
  const TestBundles model({.layers = 1, .neurons = 128}, 1);
  const uint64_t gate_bytes = model.layout().split;
  const uint64_t rest_bytes = model.layout().stride - gate_bytes;
  for (const PipelineKind pipeline : {PipelineKind::kMatrix, PipelineKind::kCluster}) {
    StreamedFfns streamed(
        budget_, model.Source(model.File(budget_, 0)),
        {.cache_slots = 128, .range_neurons = 64, .range_buffers = 2},
        {.pipeline = pipeline, .lookahead = Lookahead::kOff, .gates_first = true});
    const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
    std::vector<int32_t> list(100);
    std::iota(list.begin(), list.end(), 3);
    std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
    std::vector<float> out(x.size());
    const auto run = [&](bool skip_silent) {
      const StreamCounts before = streamed.counts();
      streamed.Run(*compute_, ffn, x.data(), list, skip_silent, out.data());
      EXPECT_EQ(out, Resident(model, ffn, x, list, skip_silent));
      StreamCounts counts = streamed.counts();
      return counts -= before;
    };
    const StreamCounts first = run(true);
    const std::set<int32_t> fired(fired_.begin(), fired_.end());
    const auto num_fired = static_cast<int64_t>(fired.size());
    ASSERT_GT(num_fired, 10);
    ASSERT_LT(num_fired, 90);
    EXPECT_EQ(first.misses, 100);
    EXPECT_EQ(first.reads, 100 + num_fired);
    EXPECT_EQ(first.rests_left, 100 - num_fired);
    EXPECT_EQ(first.bytes_read, 100 * gate_bytes + static_cast<uint64_t>(num_fired) * rest_bytes);
    const StreamCounts again = run(true);
    EXPECT_EQ(again.hits, 100);
    EXPECT_EQ(again.reads, 0);
    EXPECT_EQ(again.rests_left, 0);
    x = RandomFloats(model.sizes().hidden, random_);
    const StreamCounts other = run(true);
    const auto is_new = [&](int32_t neuron) { return fired.count(neuron) == 0; };
    const int64_t num_new = std::count_if(fired_.begin(), fired_.end(), is_new);
    EXPECT_GT(num_new, 0);
    EXPECT_EQ(other.reads, num_new);
    EXPECT_EQ(other.bytes_read, static_cast<uint64_t>(num_new) * rest_bytes);
    EXPECT_EQ(run(false).reads, 100 - num_fired - num_new) << "the rest of all others";
    EXPECT_EQ(run(true).reads, 0);
  }
}

// A gate that the cache has alone is no bundle for prompts.
TEST_F(StreamedFfnsTest, PromptsDoNotTakeGatesForBundles) {
  const TestBundles model({.layers = 1, .neurons = 128}, 1);
  StreamedFfns streamed(budget_, model.Source(model.File(budget_, 0)),
                        {.cache_slots = 128, .range_neurons = 64, .range_buffers = 2},
                        {.gates_first = true});
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  std::vector<int32_t> list(128);
  std::iota(list.begin(), list.end(), 0);
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  std::vector<float> out(x.size());
  streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
  Resident(model, ffn, x, list);
  const BundleStore& store = streamed.store();
  for (int32_t neuron = 0; neuron < 128; ++neuron) {
    const bool fired = std::binary_search(fired_.begin(), fired_.end(), neuron);
    EXPECT_EQ(store.CachedSlot(0, neuron) >= 0, fired) << neuron;
  }
}

TEST_F(StreamedFfnsTest, DamageOfEitherHalfIsNamed) {
  for (const bool in_gate : {true, false}) {
    TestBundles model({.layers = 1, .neurons = 64}, 1);
    std::vector<int32_t> list(64);
    std::iota(list.begin(), list.end(), 0);
    const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
    const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
    Resident(model, ffn, x, list);
    const int32_t damaged = in_gate ? 7 : fired_.front();
    const BundleRole role = in_gate ? BundleRole::kGate : BundleRole::kDown;
    model.bytes()[model.OffsetOf(0, damaged) + model.layout().Part(role).offset + 5] ^=
        std::byte{1};
    StreamedFfns streamed(budget_, model.Source(model.File(budget_, 0)),
                          {.cache_slots = 64, .range_neurons = 64, .range_buffers = 2},
                          {.gates_first = true});
    std::vector<float> out(x.size());
    try {
      streamed.Run(*compute_, ffn, x.data(), list, true, out.data());
      FAIL() << "damage was not seen";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("neuron " + std::to_string(damaged) + " of"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST_F(StreamedFfnsTest, ChargesWhatItSays) {
  const TestBundles model({}, 1);
  for (const auto& [holds_gates, gates_first] :
       {std::pair(false, false), {true, false}, {false, true}}) {
    const StreamPlan plan = {.holds_gates = holds_gates,
                             .pinned_neurons = 64,
                             .cache_slots = 10,
                             .range_neurons = 64,
                             .range_buffers = 2};
    Budget budget;
    auto file = model.File(budget, 0);
    const uint64_t before = budget.used_bytes();
    const StreamOptions options = {.gates_first = gates_first};
    const StreamedFfns streamed(budget, model.Source(std::move(file)), plan, options);
    EXPECT_EQ(budget.used_bytes() - before,
              StreamedFfns::ChargedBytes(model.shape(), plan, model.sizes().hidden, options));
    EXPECT_EQ(budget.Ledger().count("gates"), holds_gates ? 1 : 0);
  }
}

}  // namespace
}  // namespace hearth
