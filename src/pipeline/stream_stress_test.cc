// Random schedules and random faults: streamed FFNs against the same FFNs in memory, bit for bit.
// A run does what CI can wait for, always the same. Others, as many as one likes, print their
// seeds:
//   pipeline_test --gtest_filter='StreamStress*' --gtest_shuffle --gtest_repeat=20
// and --gtest_random_seed=SEED repeats one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/sparse_prefill.h"
#include "pipeline/test_bundles.h"
#include "storage/async/faulty_file.h"

namespace hearth {
namespace {

// A list that takes some steps to be known.
class StepsToAList final : public ListGuess {
 public:
  StepsToAList(std::vector<int32_t> list, int steps) : list_(std::move(list)), steps_(steps) {}
  Step TakeStep() noexcept override {
    const int step = taken_.fetch_add(1);
    if (step >= steps_) return Step::kNone;
    std::this_thread::yield();
    return finished_.fetch_add(1) + 1 == steps_ ? Step::kLast : Step::kSome;
  }
  std::span<const int32_t> listed() const noexcept override { return list_; }

 private:
  const std::vector<int32_t> list_;
  const int steps_;
  std::atomic<int> taken_{0}, finished_{0};
};

constexpr int kModels = 20;
constexpr int kSchedulesOfModel = 25;
constexpr int kFaultScriptsOfModel = 5;
constexpr int64_t kPromptTokens = 9;

class StreamStressTest : public StreamedFfnsTest {
 protected:
  StreamStressTest() {
    random_.seed(static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed()));
  }

  int64_t Pick(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }
  bool Chance(double share) { return std::bernoulli_distribution(share)(random_); }
  template <typename Choices>
  auto Of(const Choices& choices) {
    return choices[static_cast<size_t>(Pick(0, std::ssize(choices) - 1))];
  }
  Compute& RandomCompute() { return *computes_[static_cast<size_t>(Pick(0, 3))]; }

  // To be run with a random instruction set.
  TestBundles RandomModel() {
    UseIsa(static_cast<size_t>(random_()));
    computes_.clear();
    for (int threads = 1; threads <= 4; ++threads) {
      computes_.push_back(std::make_unique<Compute>(isa_, threads));
    }
    return TestBundles(
        {.layers = Pick(1, 3),
         .experts = Pick(1, 2),
         .neurons = Pick(1, 260),
         .hidden = 32 * Pick(1, 6),
         .dtype = Of(std::vector{DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16}),
         .kind = KindOfTrial(static_cast<int>(Pick(0, 3)))},
        static_cast<uint32_t>(random_()));
  }

  // Small caches mostly, so that neurons are evicted all the time and some find no slot.
  StreamPlan SmallPlan(const TestBundles& model) {
    StreamPlan plan = RandomPlan(model.shape(), Chance(0.3));
    if (Chance(0.7)) plan.cache_slots = std::min<int64_t>(plan.cache_slots, 24);
    if (Chance(0.6)) {
      plan.lent = {.count = Pick(1, 6), .page_bytes = static_cast<uint64_t>(64 * Pick(1, 200))};
    }
    return plan;
  }
  // Of all threads, each time that one looks: now none of its time is lost, now all of it.
  static ProcessorShareOptions ALoadThatComesAndGoes() {
    const auto looks = std::make_shared<std::atomic<int>>(0);
    return {.run_delay =
                [looks] {
                  const int look = (*looks)++;
                  return std::optional(1e3 * (look / 40 * 20 + std::min(look % 40, 20)));
                },
            .look_seconds = 0};
  }
  StreamOptions RandomOptions() {
    return {.policy = Of(AllCachePolicies()),
            .pipeline = Of(AllPipelines()),
            .merge_gap_bytes = Of(std::vector<std::optional<uint32_t>>{std::nullopt, 0, 5000}),
            .lookahead = Of(AllLookaheads()),
            .gates_first = Chance(0.5),
            .piece_bytes = Of(std::vector<uint32_t>{0, 0, 512, 1024}),
            .io_thread = Of(AllIoThreads()),
            .processors = Chance(0.3) ? ALoadThatComesAndGoes() : ProcessorShareOptions{}};
  }
  std::unique_ptr<StreamedFfns> Open(Budget& budget, const TestBundles& model,
                                     std::unique_ptr<AsyncFile> file) {
    kv_pages_.clear();
    return std::make_unique<StreamedFfns>(budget, model.Source(std::move(file)), SmallPlan(model),
                                          RandomOptions());
  }

  StreamedFfn RandomFfn(const TestBundles& model) {
    StreamedFfn ffn = {Pick(0, model.sizes().layers - 1), Pick(0, model.sizes().experts - 1),
                       Of(std::vector{FfnActivation::kRelu, FfnActivation::kDRelu,
                                      FfnActivation::kFatRelu, FfnActivation::kThresholdedSilu}),
                       0};
    const bool has_threshold = ffn.activation == FfnActivation::kFatRelu ||
                               ffn.activation == FfnActivation::kThresholdedSilu;
    if (has_threshold) ffn.threshold = 0.1f;
    return ffn;
  }

  // Some FFNs of one token; before each the list of the next is guessed, right or wrong. Throws
  // what Run throws.
  void ExpectTokenOfMemory(const TestBundles& model, StreamedFfns& streamed) {
    streamed.BeginPass(Chance(0.8) ? 1 : 0);
    StreamedFfn ffn = RandomFfn(model);
    std::vector<int32_t> neurons = RandomList(model.sizes().neurons, random_);
    for (int64_t left = Pick(1, 4); left > 0; --left) {
      const StreamedFfn next = Chance(0.8) ? RandomFfn(model) : ffn;
      const std::vector<int32_t> next_neurons = RandomList(model.sizes().neurons, random_);
      const StreamedFfn guessed = Chance(0.9) ? next : RandomFfn(model);
      StepsToAList guess(Chance(0.7) ? next_neurons : RandomList(model.sizes().neurons, random_),
                         static_cast<int>(Pick(1, 20)));
      const bool is_other = guessed.layer != ffn.layer || guessed.expert != ffn.expert;
      if (streamed.looks_ahead() && is_other && Chance(0.9)) streamed.Expect(guessed, guess);
      ExpectFfnOfMemory(model, streamed, ffn, neurons);
      ffn = next;
      neurons = next_neurons;
    }
    // Or the pass ends early.
    if (Chance(0.9)) streamed.EndToken();
  }

  void ExpectFfnOfMemory(const TestBundles& model, StreamedFfns& streamed, const StreamedFfn& ffn,
                         const std::vector<int32_t>& neurons) {
    const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
    std::optional<std::span<const int32_t>> list = neurons;
    const bool skip_silent = Chance(0.8);
    if (streamed.store().plan().holds_gates && Chance(0.5)) list.reset();
    std::vector<float> out(x.size(), 99.0f);
    streamed.Run(RandomCompute(), ffn, x.data(), list, skip_silent, out.data());
    EXPECT_EQ(out, Resident(model, ffn, x, list, skip_silent));
  }

  using Lists = std::vector<std::vector<int32_t>>;
  Lists RandomLists(const TestBundles& model, int64_t tokens) {
    Lists lists;
    for (; tokens > 0; --tokens) lists.push_back(RandomList(model.sizes().neurons, random_));
    return lists;
  }
  static std::vector<int32_t> Union(const Lists& lists) {
    std::set<int32_t> all;
    for (const std::vector<int32_t>& list : lists) all.insert(list.begin(), list.end());
    return {all.begin(), all.end()};
  }

  // Some FFNs of a pass of several sequences; before each it is guessed, right or wrong, what any
  // token of the next will list. Throws what RunBatch throws.
  void ExpectPassOfMemory(const TestBundles& model, StreamedFfns& streamed) {
    const int64_t tokens = Pick(1, 6);
    streamed.BeginPass(Chance(0.8) ? tokens : 0);
    StreamedFfn ffn = RandomFfn(model);
    Lists lists = RandomLists(model, tokens);
    for (int64_t left = Pick(1, 3); left > 0; --left) {
      const StreamedFfn next = RandomFfn(model);
      Lists next_lists = RandomLists(model, tokens);
      StepsToAList guess(
          Chance(0.7) ? Union(next_lists) : RandomList(model.sizes().neurons, random_),
          static_cast<int>(Pick(1, 20)));
      const bool is_other = next.layer != ffn.layer || next.expert != ffn.expert;
      if (streamed.looks_ahead() && is_other) streamed.Expect(next, guess);
      ExpectBatchOfMemory(model, streamed, ffn, lists);
      ffn = next;
      lists.swap(next_lists);
    }
    if (Chance(0.9)) streamed.EndToken();
  }

  void ExpectBatchOfMemory(const TestBundles& model, StreamedFfns& streamed, const StreamedFfn& ffn,
                           const Lists& neurons) {
    const int64_t tokens = std::ssize(neurons), hidden = model.sizes().hidden;
    std::vector<std::vector<float>> x;
    std::vector<float> all;
    for (int64_t t = 0; t < tokens; ++t) {
      x.push_back(RandomFloats(hidden, random_));
      all.insert(all.end(), x.back().begin(), x.back().end());
    }
    const std::vector<std::span<const int32_t>> lists(neurons.begin(), neurons.end());
    const bool skip_silent = Chance(0.8);
    const bool has_lists = !streamed.store().plan().holds_gates || Chance(0.5);
    SparseBatch batch(budget_, {tokens, hidden, model.sizes().neurons});
    std::vector<float> out(all.size(), 99.0f);
    streamed.RunBatch(RandomCompute(), batch, ffn,
                      {.x = {all.data(), tokens, hidden, hidden},
                       .listed = has_lists ? SparseBatch::Lists(lists) : SparseBatch::Lists(),
                       .skip_silent = skip_silent,
                       .out = {out.data(), tokens, hidden, hidden}});
    for (size_t t = 0; t < x.size(); ++t) {
      std::optional<std::span<const int32_t>> list;
      if (has_lists) list = neurons[t];
      const auto begin = out.begin() + static_cast<int64_t>(t) * hidden;
      EXPECT_EQ(std::vector<float>(begin, begin + hidden),
                Resident(model, ffn, x[t], list, skip_silent));
    }
  }

  // Tokens of a prompt. Throws what ForEachArriving throws.
  void ExpectPromptOfMemory(const TestBundles& model, StreamedFfns& streamed) {
    const StreamedFfn ffn = RandomFfn(model);
    const int64_t hidden = model.sizes().hidden, neurons = model.sizes().neurons;
    std::vector<float> x = RandomFloats(kPromptTokens * hidden, random_);
    std::vector<float> out(x.size(), 99.0f), expected(x.size());
    Compute& compute = RandomCompute();
    SparsePrefill op(budget_, {kPromptTokens, hidden, neurons, compute.team().size()});
    MatMulInput input(budget_, kPromptTokens, hidden);
    input.Set({x.data(), kPromptTokens, hidden, hidden});
    const SparsePrefill::Choice choice = {false, true};
    const auto visit = [&](int64_t first, const FfnNeurons& rows, const NeuronsArrive* arrive) {
      op.RunRange(compute, rows, input,
                  {first, first == 0, first + rows.gate.rows == neurons, arrive}, choice,
                  {out.data(), kPromptTokens, hidden, hidden});
    };
    streamed.ForEachArriving(compute, ffn, visit);
    op.Run(compute, model.Resident(ffn), input, choice,
           {expected.data(), kPromptTokens, hidden, hidden});
    EXPECT_EQ(out, expected);
  }

  // Contexts grow and end: pages are taken, which others write to, and come back.
  void MoveKvPages(StreamedFfns& streamed) {
    const LentPages& lent = streamed.store().plan().lent;
    for (int64_t left = lent.count > 0 ? Pick(0, 4) : 0; left > 0; --left) {
      const int64_t page = Pick(0, lent.count - 1);
      if (kv_pages_.erase(page) > 0) {
        streamed.kv_slots().Return(page);
      } else {
        streamed.kv_slots().Take(page);
        kv_pages_.insert(page);
        std::memset(streamed.kv_slots().pages() + static_cast<uint64_t>(page) * lent.page_bytes,
                    0xff, lent.page_bytes);
      }
    }
  }

  void ExpectStepOfMemory(const TestBundles& model, StreamedFfns& streamed) {
    MoveKvPages(streamed);
    if (Chance(0.2)) return ExpectPromptOfMemory(model, streamed);
    if (Chance(0.4)) return ExpectPassOfMemory(model, streamed);
    ExpectTokenOfMemory(model, streamed);
  }

  // Passes until all faults of the script lie behind; how many failed.
  int64_t RunThroughFaults(const TestBundles& model, StreamedFfns& streamed, const FaultyFile& file,
                           uint64_t reads) {
    uint64_t errors = 0;
    for (int step = 0; step < 40 && file.counts().reads < reads; ++step) {
      try {
        ExpectStepOfMemory(model, streamed);
      } catch (const Error&) {
        // A read ahead may fail a later pass than the one that issued it, each only one.
        EXPECT_LE(++errors, file.counts().faults);
      }
    }
    if (file.counts().reads >= reads) {
      EXPECT_NO_THROW(ExpectTokenOfMemory(model, streamed));
      EXPECT_NO_THROW(ExpectPromptOfMemory(model, streamed));
    }
    return static_cast<int64_t>(errors);
  }

  std::vector<std::unique_ptr<Compute>> computes_;  // of 1 to 4 threads
  std::set<int64_t> kv_pages_;                      // taken
};

TEST_F(StreamStressTest, RandomSchedulesGiveTheBitsOfMemory) {
  for (int i = 0; i < kModels; ++i) {
    const TestBundles model = RandomModel();
    for (int schedule = 0; schedule < kSchedulesOfModel; ++schedule) {
      Budget budget;
      const auto streamed = Open(budget, model, model.File(budget, random_()));
      streamed->Fill(RandomCompute(), {});
      for (int step = 0; step < 5; ++step) ExpectStepOfMemory(model, *streamed);
      ASSERT_FALSE(HasFailure()) << "model " << i << ", schedule " << schedule;
    }
  }
}

TEST_F(StreamStressTest, RandomFaultsFailPassesAndNothingElse) {
  const FaultRates rates = {
      .error = 0.01, .short_read = 0.01, .delay = 0.05, .flip = 0.01, .max_delay_ns = 20000};
  int64_t failed = 0;
  for (int i = 0; i < kModels; ++i) {
    const TestBundles model = RandomModel();
    for (int script = 0; script < kFaultScriptsOfModel; ++script) {
      Budget budget;
      const auto reads = static_cast<uint64_t>(Pick(1, 400));
      auto owned = std::make_unique<FaultyFile>(model.File(budget, random_()),
                                                RandomFaultScript(random_(), reads, rates));
      const FaultyFile& file = *owned;
      const auto streamed = Open(budget, model, std::move(owned));
      try {
        streamed->Fill(RandomCompute(), {});
      } catch (const Error&) {
        // A model whose loading failed is not used.
        EXPECT_GT(file.counts().faults, 0u);
        ++failed;
        continue;
      }
      failed += RunThroughFaults(model, *streamed, file, reads);
      ASSERT_FALSE(HasFailure()) << "model " << i << ", script " << script;
    }
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace hearth
