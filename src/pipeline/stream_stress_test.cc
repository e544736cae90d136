// Random schedules and random faults: streamed FFNs against the same FFNs in memory, bit for bit.
// A run does what CI can wait for, always the same. Others, as many as one likes:
//   pipeline_test --gtest_filter='StreamStress*' --gtest_shuffle --gtest_repeat=20
// prints the seed of every repetition, and --gtest_random_seed=SEED repeats it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/dequantize.h"
#include "kernels/row_pack.h"
#include "ops/sparse_prefill.h"
#include "pipeline/streamed_ffns.h"
#include "storage/faulty_file.h"
#include "storage/memory_file.h"
#include "tensor/row_groups.h"

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
  std::vector<float> Floats(int64_t count, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(engine_);
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

// The bundles of a model of random sizes and weights, as they lie in a file, and the oracle: its
// FFNs computed where all of them are in memory.
class RandomModel {
 public:
  explicit RandomModel(Random& random)
      : dtype_(random.Of(std::vector{DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16})),
        hidden_(32 * random.Pick(1, 6)),
        layers_(random.Pick(1, 3)),
        experts_(random.Pick(1, 2)),
        neurons_(random.Pick(1, 260)),
        layout_(MakeBundleLayout(dtype_, hidden_)),
        compute_("auto", 1),
        op_(budget_, hidden_, neurons_),
        prefill_(budget_, {kPromptTokens, hidden_, neurons_, 1}),
        input_(budget_, kPromptTokens, hidden_) {
    bytes_.resize(OffsetOf(layers_ * experts_, 0));
    for (size_t at = kBundleAlignment; at < bytes_.size(); at += layout_.stride) {
      const std::span<std::byte> bundle = std::span(bytes_).subspan(at, layout_.stride);
      for (const BundleRole role : {BundleRole::kGate, BundleRole::kUp, BundleRole::kDown}) {
        WriteRow(random.Floats(hidden_, 0.1f), bundle.subspan(layout_.Part(role).offset));
      }
      SetBundleChecks(layout_, bundle);
    }
  }

  int64_t hidden() const { return hidden_; }
  int64_t layers() const { return layers_; }
  int64_t experts() const { return experts_; }
  int64_t neurons() const { return neurons_; }
  StreamShape shape() const { return {layers_ * experts_, neurons_, layout_.stride}; }

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
                        .hidden_size = hidden_,
                        .num_layers = layers_,
                        .num_experts = experts_,
                        .neurons = neurons_};
    for (int64_t layer = 0; layer < layers_; ++layer) {
      source.layer_offsets.push_back(OffsetOf(layer * experts_, 0));
    }
    return source;
  }

  std::vector<float> Token(const StreamedFfn& ffn, const std::vector<float>& x,
                           const std::vector<int32_t>& list, bool skip_silent) {
    std::vector<float> out(x.size());
    op_.Activate(compute_, Resident(ffn), x.data(), list, skip_silent);
    op_.AddDown(compute_, Resident(ffn), out.data());
    return out;
  }

  std::vector<float> Prompt(const StreamedFfn& ffn, std::vector<float>& x) {
    std::vector<float> out(x.size());
    input_.Set({x.data(), kPromptTokens, hidden_, hidden_});
    prefill_.Run(compute_, Resident(ffn), input_, {.skip_silent = ffn.threshold > 0},
                 {out.data(), kPromptTokens, hidden_, hidden_});
    return out;
  }

 private:
  size_t OffsetOf(int64_t ffn, int64_t neuron) const {
    return kBundleAlignment + static_cast<size_t>(ffn * neurons_ + neuron) * layout_.stride;
  }

  FfnNeurons Resident(const StreamedFfn& ffn) const {
    const auto rows = [&](BundleRole role) {
      const BundlePart& part = layout_.Part(role);
      return RowsView{
          .data = bytes_.data() + OffsetOf(ffn.layer * experts_ + ffn.expert, 0) + part.offset,
          .dtype = part.dtype,
          .stride = layout_.stride,
          .cols = hidden_,
          .rows = neurons_};
    };
    return {rows(BundleRole::kGate), rows(BundleRole::kUp), rows(BundleRole::kDown), ffn.activation,
            ffn.threshold};
  }

  void WriteRow(const std::vector<float>& row, std::span<std::byte> out) const {
    std::vector<std::byte> blocks(RowBytes(dtype_, row.size()));
    kernels::Convert(DType::kF32, reinterpret_cast<const std::byte*>(row.data()), hidden_, dtype_,
                     blocks.data());
    if (HasRowGroups(dtype_)) {
      kernels::PackRow(dtype_, blocks.data(), hidden_, out.data());
    } else {
      std::memcpy(out.data(), blocks.data(), blocks.size());
    }
  }

  const DType dtype_;
  const int64_t hidden_, layers_, experts_, neurons_;
  const BundleLayout layout_;
  std::vector<std::byte> bytes_;
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
    return {.policy = random_.Of(AllCachePolicies()),
            .pipeline = random_.Chance(0.2) ? PipelineKind::kBlocking : PipelineKind::kCluster};
  }

  StreamedFfn RandomFfn(const RandomModel& model) {
    StreamedFfn ffn = {random_.Pick(0, model.layers() - 1), random_.Pick(0, model.experts() - 1),
                       static_cast<FfnActivation>(random_.Pick(0, kNumFfnActivations - 1)), 0};
    const bool has_threshold = ffn.activation == FfnActivation::kFatRelu ||
                               ffn.activation == FfnActivation::kThresholdedSilu;
    if (has_threshold) ffn.threshold = 0.1f;
    return ffn;
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
    const StreamedFfn ffn = RandomFfn(model);
    const std::vector<float> x = random_.Floats(model.hidden(), 1);
    const std::vector<int32_t> list = RandomList(model.neurons());
    const bool skip_silent = ffn.activation != FfnActivation::kSilu && random_.Chance(0.8);
    std::vector<float> out(x.size(), 99.0f);
    streamed.BeginPass();
    streamed.Run(RandomCompute(), ffn, x.data(), list, skip_silent, out.data());
    streamed.EndToken();
    EXPECT_EQ(out, model.Token(ffn, x, list, skip_silent));
  }

  // Throws what ForEachRange throws.
  void ExpectPromptOfMemory(RandomModel& model, StreamedFfns& streamed) {
    const StreamedFfn ffn = RandomFfn(model);
    const int64_t hidden = model.hidden(), neurons = model.neurons();
    std::vector<float> x = random_.Floats(kPromptTokens * hidden, 1);
    std::vector<float> out(x.size(), 99.0f);
    Compute& compute = RandomCompute();
    SparsePrefill op(budget_, {kPromptTokens, hidden, neurons, compute.team().size()});
    MatMulInput input(budget_, kPromptTokens, hidden);
    input.Set({x.data(), kPromptTokens, hidden, hidden});
    streamed.ForEachRange(compute, ffn, [&](int64_t first, const FfnNeurons& rows) {
      op.RunRange(compute, rows, input, {first, first == 0, first + rows.gate.rows == neurons},
                  {.skip_silent = ffn.threshold > 0}, {out.data(), kPromptTokens, hidden, hidden});
    });
    EXPECT_EQ(out, model.Prompt(ffn, x));
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
      StreamedFfns streamed(budget, model.Source(model.File(budget, order)),
                            RandomPlan(model.shape()), RandomOptions());
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
      auto owned = std::make_unique<FaultyFile>(model.File(budget, order),
                                                RandomFaultScript(order, reads, rates));
      const FaultyFile& file = *owned;
      StreamedFfns streamed(budget, model.Source(std::move(owned)), RandomPlan(model.shape()),
                            RandomOptions());
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
