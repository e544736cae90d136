// Random schedules and random faults: streamed FFNs against the same FFNs in memory, bit for bit.
// A run does what CI can wait for, always the same. Others, as many as one likes:
//   pipeline_test --gtest_filter='StreamStress*' --gtest_shuffle --gtest_repeat=20
// prints the seed of every repetition, and --gtest_random_seed=SEED repeats it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "base/error.h"
#include "ops/sparse_prefill.h"
#include "pipeline/test_bundles.h"
#include "storage/faulty_file.h"

namespace hearth {
namespace {

constexpr int kModels = 20;
constexpr int kSchedulesOfModel = 25;
constexpr int kFaultScriptsOfModel = 5;
constexpr int kMaxThreads = 4;
constexpr int64_t kPromptTokens = 9;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  int64_t Pick(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(engine_);
  }
  bool Chance(double share) { return std::bernoulli_distribution(share)(engine_); }
  template <typename Choices>
  auto Of(const Choices& choices) {
    return choices[static_cast<size_t>(Pick(0, std::ssize(choices) - 1))];
  }
  std::vector<float> Floats(int64_t count) {
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(engine_);
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

// A model of random sizes and weights, and the oracle: its FFNs computed where all of them are in
// memory.
class RandomModel {
 public:
  explicit RandomModel(Random& random)
      : bundles_({.layers = random.Pick(1, 3),
                  .experts = random.Pick(1, 2),
                  .neurons = random.Pick(1, 260),
                  .hidden = 32 * random.Pick(1, 6),
                  .dtype = random.Of(
                      std::vector{DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16})},
                 static_cast<uint32_t>(random.Pick(0, 1 << 30))),
        compute_("auto", 1),
        op_(budget_, sizes().hidden, sizes().neurons),
        prefill_(budget_, {kPromptTokens, sizes().hidden, sizes().neurons, 1}),
        input_(budget_, kPromptTokens, sizes().hidden) {}

  const TestBundles& bundles() const { return bundles_; }
  const TestSizes& sizes() const { return bundles_.sizes(); }

  std::vector<float> Token(const StreamedFfn& ffn, const std::vector<float>& x,
                           std::optional<std::span<const int32_t>> list, bool skip_silent) {
    std::vector<float> out(x.size());
    op_.Activate(compute_, bundles_.Resident(ffn), x.data(), list, skip_silent);
    op_.AddDown(compute_, bundles_.Resident(ffn), out.data());
    return out;
  }

  std::vector<float> Prompt(const StreamedFfn& ffn, std::vector<float>& x, bool skip_silent) {
    const int64_t hidden = sizes().hidden;
    std::vector<float> out(x.size());
    input_.Set({x.data(), kPromptTokens, hidden, hidden});
    prefill_.Run(compute_, bundles_.Resident(ffn), input_,
                 {.listed = {}, .skip_silent = skip_silent},
                 {out.data(), kPromptTokens, hidden, hidden});
    return out;
  }

 private:
  TestBundles bundles_;
  Budget budget_;
  Compute compute_;
  SparseFfn op_;
  SparsePrefill prefill_;
  MatMulInput input_;
};

class StreamStressTest : public ::testing::Test {
 protected:
  StreamStressTest()
      : random_(static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed())) {
    for (int threads = 1; threads <= kMaxThreads; ++threads) {
      computes_.push_back(std::make_unique<Compute>("auto", threads));
    }
  }

  // Small caches, so that neurons are evicted all the time and some find no slot.
  StreamPlan RandomPlan(const StreamShape& shape) {
    StreamPlan plan;
    plan.holds_gates = random_.Chance(0.4);
    if (random_.Chance(0.5)) {
      plan.pinned_neurons = std::min(64 * random_.Pick(0, shape.neurons / 64 + 1), shape.neurons);
    }
    const int64_t streamed =
        std::max<int64_t>((shape.neurons - plan.pinned_neurons) * shape.num_ffns, 1);
    plan.cache_slots =
        random_.Pick(1, random_.Chance(0.7) ? std::min<int64_t>(streamed, 24) : streamed);
    plan.range_neurons = 64 * random_.Pick(1, 3);
    plan.range_buffers = random_.Pick(2, 4);
    plan.queue_depth = static_cast<int>(random_.Pick(1, 20));
    return plan;
  }

  StreamOptions RandomOptions() {
    return {.policy = random_.Of(AllCachePolicies()), .pipeline = random_.Of(AllPipelines())};
  }

  StreamedFfn RandomFfn(const TestSizes& sizes) {
    return {random_.Pick(0, sizes.layers - 1), random_.Pick(0, sizes.experts - 1),
            static_cast<FfnActivation>(random_.Pick(0, kNumFfnActivations - 1)), 0.1f};
  }

  // The first neurons more often, as in a packed file; now and then all or none.
  std::vector<int32_t> RandomList(int64_t neurons) {
    const double share = random_.Chance(0.1) ? 2 : static_cast<double>(random_.Pick(0, 10)) / 10;
    std::vector<int32_t> list;
    for (int64_t n = 0; n < neurons; ++n) {
      const double place = static_cast<double>(n) / static_cast<double>(neurons);
      if (random_.Chance(std::min(share * (1 - 0.5 * place), 1.0))) {
        list.push_back(static_cast<int32_t>(n));
      }
    }
    return list;
  }

  Compute& RandomCompute() { return *computes_[static_cast<size_t>(random_.Pick(1, 4) - 1)]; }

  // Throws what Run throws.
  void ExpectTokenOfMemory(RandomModel& model, StreamedFfns& streamed) {
    const StreamedFfn ffn = RandomFfn(model.sizes());
    const std::vector<float> x = random_.Floats(model.sizes().hidden);
    const std::vector<int32_t> listed = RandomList(model.sizes().neurons);
    std::optional<std::span<const int32_t>> list = listed;
    if (streamed.store().plan().holds_gates && random_.Chance(0.6)) list.reset();
    const bool skip_silent = CanSkipNeurons(ffn.activation) && random_.Chance(0.8);
    std::vector<float> out(x.size(), 99.0f);
    streamed.BeginPass();
    streamed.Run(RandomCompute(), ffn, x.data(), list, skip_silent, out.data());
    streamed.EndToken();
    EXPECT_EQ(out, model.Token(ffn, x, list, skip_silent));
  }

  // Throws what ForEachRange throws.
  void ExpectPromptOfMemory(RandomModel& model, StreamedFfns& streamed) {
    const StreamedFfn ffn = RandomFfn(model.sizes());
    const int64_t hidden = model.sizes().hidden, neurons = model.sizes().neurons;
    const bool skip_silent = CanSkipNeurons(ffn.activation);
    std::vector<float> x = random_.Floats(kPromptTokens * hidden);
    std::vector<float> out(x.size(), 99.0f);
    Compute& compute = RandomCompute();
    SparsePrefill op(budget_, {kPromptTokens, hidden, neurons, compute.team().size()});
    MatMulInput input(budget_, kPromptTokens, hidden);
    input.Set({x.data(), kPromptTokens, hidden, hidden});
    streamed.BeginPass();
    streamed.ForEachRange(compute, ffn, [&](int64_t first, const FfnNeurons& rows) {
      op.RunRange(compute, rows, input, {first, first == 0, first + rows.gate.rows == neurons},
                  {.listed = {}, .skip_silent = skip_silent},
                  {out.data(), kPromptTokens, hidden, hidden});
    });
    EXPECT_EQ(out, model.Prompt(ffn, x, skip_silent));
  }

  void ExpectStepOfMemory(RandomModel& model, StreamedFfns& streamed) {
    if (random_.Chance(0.2)) {
      ExpectPromptOfMemory(model, streamed);
    } else {
      ExpectTokenOfMemory(model, streamed);
    }
  }

  Random random_;
  Budget budget_;
  std::vector<std::unique_ptr<Compute>> computes_;  // of 1 to kMaxThreads threads
};

TEST_F(StreamStressTest, RandomSchedulesGiveTheBitsOfMemory) {
  for (int i = 0; i < kModels; ++i) {
    RandomModel model(random_);
    for (int schedule = 0; schedule < kSchedulesOfModel; ++schedule) {
      Budget budget;
      const auto order = static_cast<uint64_t>(random_.Pick(0, 1 << 30));
      StreamedFfns streamed(budget, model.bundles().Source(model.bundles().File(budget, order)),
                            RandomPlan(model.bundles().shape()), RandomOptions());
      streamed.Fill(RandomCompute(), {});
      for (int step = 0; step < 5; ++step) ExpectStepOfMemory(model, streamed);
      ASSERT_FALSE(HasFailure()) << "model " << i << ", schedule " << schedule;
    }
  }
}

TEST_F(StreamStressTest, RandomFaultsFailPassesAndNothingElse) {
  int64_t failed = 0;
  for (int i = 0; i < kModels; ++i) {
    RandomModel model(random_);
    for (int script = 0; script < kFaultScriptsOfModel; ++script) {
      Budget budget;
      const auto order = static_cast<uint64_t>(random_.Pick(0, 1 << 30));
      const uint64_t reads = static_cast<uint64_t>(random_.Pick(1, 400));
      const FaultRates rates = {
          .error = 0.01, .short_read = 0.01, .delay = 0.05, .flip = 0.01, .max_delay_ns = 20000};
      auto owned = std::make_unique<FaultyFile>(model.bundles().File(budget, order),
                                                RandomFaultScript(order, reads, rates));
      const FaultyFile& file = *owned;
      StreamedFfns streamed(budget, model.bundles().Source(std::move(owned)),
                            RandomPlan(model.bundles().shape()), RandomOptions());
      // A model whose loading failed is not used.
      try {
        streamed.Fill(RandomCompute(), {});
      } catch (const Error&) {
        EXPECT_GT(file.counts().faults, 0u);
        ++failed;
        continue;
      }
      // A read ahead may fail a later pass than the one that issued it, each only one.
      uint64_t errors = 0;
      for (int step = 0; step < 40 && file.counts().reads < reads; ++step) {
        try {
          ExpectStepOfMemory(model, streamed);
        } catch (const Error&) {
          EXPECT_LE(++errors, file.counts().faults);
          ++failed;
        }
      }
      if (file.counts().reads >= reads) {
        EXPECT_NO_THROW(ExpectTokenOfMemory(model, streamed));
        EXPECT_NO_THROW(ExpectPromptOfMemory(model, streamed));
      }
      ASSERT_FALSE(HasFailure()) << "model " << i << ", script " << script;
    }
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace hearth
