// Many tokens together against one after the other.
#include "ops/sparse_prefill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "ops/test_rows.h"

namespace hearth {
namespace {

struct Case {
  DType dtype = DType::kQ4_0;
  FfnActivation activation = FfnActivation::kDRelu;
  int64_t hidden = 0;
  int64_t neurons = 0;
  int64_t tokens = 0;
  bool is_gated = true;  // else of two matrices, with biases
};

class PrefillProblem {
 public:
  PrefillProblem(const Case& c, uint32_t seed)
      : case_(c),
        random_(seed),
        gate_(c.dtype, c.hidden, c.neurons, random_, !c.is_gated),
        up_(c.dtype, c.hidden, c.neurons, random_),
        down_(c.dtype, c.hidden, c.neurons, random_),
        x_(static_cast<size_t>(c.hidden * c.tokens)) {
    std::normal_distribution<float> normal;
    for (float& v : x_) v = normal(random_);
    ffn_ = {gate_.view, c.is_gated ? up_.view : RowsView{}, down_.view, c.activation, 0.3f};
  }

  // Tokens [first, first + count) together.
  std::vector<float> Together(int threads, int64_t first, int64_t count, const char* isa = "auto",
                              bool skip_silent = true) {
    Budget budget(uint64_t{1} << 30);
    Compute compute(isa, threads);
    SparsePrefill prefill(budget, Shape(count, threads));
    MatMulInput input(budget, count, case_.hidden);
    input.Set({x_.data() + first * case_.hidden, count, case_.hidden, case_.hidden});
    std::vector<float> out(static_cast<size_t>(count * case_.hidden), 77.0f);
    // In two calls.
    for (int64_t begin = 0, half = (count + 1) / 2; !lists_.empty() && begin < count;
         begin += half) {
      prefill.SetLists(
          compute, begin,
          std::span(lists_).subspan(static_cast<size_t>(first + begin),
                                    static_cast<size_t>(std::min(half, count - begin))));
    }
    fired.assign(static_cast<size_t>(count), {});
    active.assign(static_cast<size_t>(count), {});
    factors.assign(static_cast<size_t>(count), {});
    num_blocks = 0;
    const auto after_block = [&] {
      ++num_blocks;
      for (int64_t t = 0; t < count; ++t) {
        const auto i = static_cast<size_t>(t);
        prefill.ListFired(t, fired[i]);
        prefill.ListActive(t, active[i], factors[i]);
      }
    };
    counts = prefill.Run(compute, ffn_, input, {!lists_.empty(), skip_silent},
                         {out.data(), count, case_.hidden, case_.hidden}, after_block);
    for (int64_t t = 0; !lists_.empty() && t < count; ++t) {
      std::vector<int32_t> listed;
      prefill.ListListed(t, listed);
      EXPECT_EQ(listed, lists_memory_[static_cast<size_t>(first + t)]);
    }
    return out;
  }

  // All tokens, of rows that lie in random places, each of which gets its bytes when it arrives.
  std::vector<float> Arriving(int threads) {
    std::vector<int32_t> slots(static_cast<size_t>(case_.neurons));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), random_);
    std::vector<std::byte> memory[3];
    FfnNeurons ffn = ffn_;
    ffn.slots = slots.data();
    RowsView* views[3] = {&ffn.gate, &ffn.up, &ffn.down};
    for (int v = 0; v < 3; ++v) {
      if (views[v]->empty()) continue;
      memory[v].assign(views[v]->stride * slots.size(), std::byte{0xff});
      if (views[v]->biases != nullptr) {
        views[v]->biases = memory[v].data() + (views[v]->biases - views[v]->data);
      }
      views[v]->data = memory[v].data();
    }
    const RowsView from[3] = {ffn_.gate, ffn_.up, ffn_.down};
    const NeuronsArrive arrive = [&](int64_t begin, int64_t count) {
      for (int64_t n = begin; n < begin + count; ++n) {
        const auto slot = static_cast<size_t>(slots[static_cast<size_t>(n)]);
        for (int v = 0; v < 3; ++v) {
          if (from[v].empty()) continue;
          const size_t stride = from[v].stride;
          std::copy_n(from[v].data + static_cast<size_t>(n) * stride, stride,
                      memory[v].data() + slot * stride);
        }
      }
    };
    Budget budget(uint64_t{1} << 30);
    Compute compute("auto", threads);
    SparsePrefill prefill(budget, Shape(case_.tokens, threads));
    MatMulInput input(budget, case_.tokens, case_.hidden);
    input.Set({x_.data(), case_.tokens, case_.hidden, case_.hidden});
    std::vector<float> out(x_.size(), 77.0f);
    prefill.RunRange(compute, ffn, input, {.arrive = &arrive}, {false, true},
                     {out.data(), case_.tokens, case_.hidden, case_.hidden});
    return out;
  }

  std::vector<float> OneByOne(const char* isa = "auto") {
    Budget budget(uint64_t{1} << 30);
    Compute compute(isa, 1);
    SparseFfn sparse(budget, case_.hidden, case_.neurons);
    std::vector<float> out(x_.size());
    counts = {};
    for (int64_t t = 0; t < case_.tokens; ++t) {
      std::optional<std::span<const int32_t>> listed;
      if (!lists_.empty()) listed = lists_[static_cast<size_t>(t)];
      counts += sparse.Activate(compute, ffn_, x_.data() + t * case_.hidden, listed, true);
      sparse.AddDown(compute, ffn_, out.data() + t * case_.hidden);
    }
    return out;
  }

  // From now on each token computes a random half of the neurons.
  void ListHalf() {
    lists_memory_.resize(static_cast<size_t>(case_.tokens));
    for (std::vector<int32_t>& list : lists_memory_) {
      for (int64_t n = 0; n < case_.neurons; ++n) {
        if (random_() % 2 == 0) list.push_back(static_cast<int32_t>(n));
      }
    }
    lists_.assign(lists_memory_.begin(), lists_memory_.end());
  }

  void SetBlocks(int64_t neurons) { block_neurons_ = neurons; }

  SparseFfnCounts counts;
  int64_t num_blocks = 0;                           // of Together
  std::vector<std::vector<int32_t>> fired, active;  // per token, of Together
  std::vector<std::vector<float>> factors;

 private:
  SparsePrefillShape Shape(int64_t tokens, int threads) const {
    SparsePrefillShape shape = {tokens, case_.hidden, case_.neurons, threads};
    shape.block_neurons = block_neurons_;
    return shape;
  }

  Case case_;
  int64_t block_neurons_ = 4096;
  std::mt19937 random_;
  testing::TestRows gate_, up_, down_;
  std::vector<float> x_;
  FfnNeurons ffn_;
  std::vector<std::vector<int32_t>> lists_memory_;
  std::vector<std::span<const int32_t>> lists_;
};

double RelativeError(const std::vector<float>& actual, const std::vector<float>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

TEST(SparsePrefillTest, AgreesWithOneTokenAtATime) {
  uint32_t seed = 1;
  for (const FfnActivation activation : {FfnActivation::kRelu, FfnActivation::kFatRelu,
                                         FfnActivation::kDRelu, FfnActivation::kThresholdedSilu}) {
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16}) {
      for (const int64_t hidden : {32, 544, 1024}) {
        for (const int64_t neurons : {1, 31, 64, 200}) {
          PrefillProblem problem({dtype, activation, hidden, neurons, 9, seed % 3 != 0}, seed);
          ++seed;
          const std::vector<float> expected = problem.OneByOne();
          const SparseFfnCounts counts = problem.counts;
          EXPECT_LT(RelativeError(problem.Together(2, 0, 9), expected), 1e-5)
              << NameOf(dtype) << " " << hidden << " " << neurons;
          // A gate at the threshold to within rounding may fall on either side.
          EXPECT_NEAR(problem.counts.up, counts.up, 1);
          EXPECT_NEAR(problem.counts.active, counts.active, 1);
        }
      }
    }
  }
}

TEST(SparsePrefillTest, ThreadsAndCompanyChangeNoBit) {
  for (const DType dtype : {DType::kQ4_0, DType::kF16}) {
    PrefillProblem problem({dtype, FfnActivation::kDRelu, 1184, 333, 40, dtype == DType::kF16}, 7);
    const std::vector<float> all = problem.Together(1, 0, 40);
    for (const int threads : {2, 3, 5}) EXPECT_EQ(problem.Together(threads, 0, 40), all);
    for (const int64_t first : {0, 13, 39}) {
      const int64_t count = std::min<int64_t>(17, 40 - first);
      const std::vector<float> some = problem.Together(2, first, count);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * 1184)) << first;
    }
  }
}

TEST(SparsePrefillTest, RowsOfFloatsGiveTheBitsOfOneTokenAtATime) {
  for (const std::string& isa : UsableIsaNames()) {
    for (const bool is_gated : {true, false}) {
      PrefillProblem problem({DType::kF16, FfnActivation::kFatRelu, 1120, 133, 20, is_gated}, 11);
      EXPECT_EQ(problem.Together(3, 0, 20, isa.c_str()), problem.OneByOne(isa.c_str())) << isa;
      problem.ListHalf();
      EXPECT_EQ(problem.Together(3, 0, 20, isa.c_str()), problem.OneByOne(isa.c_str())) << isa;
    }
  }
}

TEST(SparsePrefillTest, RowsMayLieAnywhereAndArriveOnlyWhenTheyAreNeeded) {
  uint32_t seed = 1;
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    for (const int64_t neurons : {1, 63, 200, 500}) {
      PrefillProblem problem({dtype, FfnActivation::kDRelu, 544, neurons, 9, seed % 2 != 0}, seed);
      ++seed;
      const std::vector<float> expected = problem.Together(1, 0, 9);
      EXPECT_EQ(problem.Arriving(1), expected) << neurons;
      EXPECT_EQ(problem.Arriving(3), expected) << neurons;
    }
  }
}

TEST(SparsePrefillTest, BlocksChangeNoBit) {
  uint32_t seed = 20;
  for (const DType dtype : {DType::kQ4_0, DType::kF16}) {
    for (const bool lists : {false, true}) {
      PrefillProblem problem({dtype, FfnActivation::kDRelu, 544, 1300, 37}, seed++);
      if (lists) problem.ListHalf();
      const std::vector<float> expected = problem.Together(2, 0, 37);
      const SparseFfnCounts counts = problem.counts;
      const auto fired = problem.fired, active = problem.active;
      const auto factors = problem.factors;
      EXPECT_EQ(problem.num_blocks, 1);
      for (const int64_t neurons : {512, 1024}) {
        problem.SetBlocks(neurons);
        EXPECT_EQ(problem.Together(2, 0, 37), expected) << neurons;
        EXPECT_EQ(problem.num_blocks, (1300 + neurons - 1) / neurons);
        EXPECT_EQ(problem.counts.up, counts.up);
        EXPECT_EQ(problem.counts.active, counts.active);
        EXPECT_EQ(problem.fired, fired);
        EXPECT_EQ(problem.active, active);
        EXPECT_EQ(problem.factors, factors);
        // Floats lie in order, and Arriving computes all.
        if (dtype == DType::kQ4_0 && !lists) {
          EXPECT_EQ(problem.Arriving(2), expected);
        }
      }
    }
  }
}

TEST(SparsePrefillTest, RefusesBlocksOfNoUse) {
  Budget budget(uint64_t{1} << 30);
  SparsePrefillShape shape = {8, 64, 64, 1};
  for (const int64_t neurons : {0, 64, 700}) {
    shape.block_neurons = neurons;
    EXPECT_THROW(SparsePrefill(budget, shape), Error) << neurons;
  }
}

TEST(SparsePrefillTest, RefusesListsThatHaveNoRoom) {
  Budget budget(uint64_t{1} << 30);
  Compute compute("auto", 1);
  SparsePrefill prefill(budget, {2, 64, 70, 1});
  const std::vector<int32_t> fits = {0, 69}, low = {-1, 3}, high = {3, 70};
  using List = std::span<const int32_t>;
  for (const std::vector<List>& lists :
       {std::vector<List>{fits, low}, {high}, {fits, fits, fits}}) {
    EXPECT_THROW(prefill.SetLists(compute, 0, lists), Error);
  }
  const std::vector<List> one = {fits};
  EXPECT_THROW(prefill.SetLists(compute, 2, one), Error);
  prefill.SetLists(compute, 1, one);
}

TEST(SparsePrefillTest, LeavingOutSilentNeuronsChangesNoBit) {
  for (const FfnActivation activation : {FfnActivation::kDRelu, FfnActivation::kThresholdedSilu}) {
    PrefillProblem problem({DType::kQ4_0, activation, 544, 200, 21}, 11);
    const std::vector<float> gated = problem.Together(2, 0, 21);
    const auto active = problem.active;
    const auto factors = problem.factors;
    EXPECT_LT(problem.counts.up, problem.counts.gate);
    EXPECT_EQ(problem.Together(2, 0, 21, "auto", false), gated);
    EXPECT_EQ(problem.counts.up, problem.counts.gate);
    EXPECT_EQ(problem.active, active);
    EXPECT_EQ(problem.factors, factors);
  }
  // SiLU is silent nowhere, and can be computed all the same.
  PrefillProblem silu({DType::kQ8_0, FfnActivation::kSilu, 96, 70, 12}, 12);
  EXPECT_LT(RelativeError(silu.Together(2, 0, 12, "auto", false), silu.OneByOne()), 1e-5);
}

TEST(SparsePrefillTest, SaysWhatEachTokenComputed) {
  PrefillProblem problem({DType::kQ4_1, FfnActivation::kDRelu, 96, 150, 10}, 13);
  problem.Together(2, 0, 10);
  int64_t fired = 0, active = 0;
  for (size_t t = 0; t < 10; ++t) {
    fired += std::ssize(problem.fired[t]);
    active += std::ssize(problem.active[t]);
    ASSERT_EQ(problem.factors[t].size(), problem.active[t].size());
    EXPECT_TRUE(std::includes(problem.fired[t].begin(), problem.fired[t].end(),
                              problem.active[t].begin(), problem.active[t].end()));
  }
  EXPECT_EQ(fired, problem.counts.up);
  EXPECT_EQ(active, problem.counts.active);
}

TEST(SparsePrefillTest, ComputesOnlyWhatIsListed) {
  PrefillProblem problem({DType::kQ8_0, FfnActivation::kRelu, 96, 150, 12}, 8);
  const std::vector<float> all = problem.Together(2, 0, 12);
  problem.ListHalf();
  const std::vector<float> half = problem.Together(2, 0, 12);
  EXPECT_GT(RelativeError(half, all), 0.1);
  EXPECT_LT(RelativeError(half, problem.OneByOne()), 1e-5);
}

TEST(SparsePrefillTest, InstructionSetsAgree) {
  for (const DType dtype : {DType::kQ4_1, DType::kF16}) {
    PrefillProblem problem({dtype, FfnActivation::kDRelu, 608, 130, 20}, 9);
    const std::vector<float> oracle = problem.Together(1, 0, 20, "scalar");
    for (const std::string& isa : UsableIsaNames()) {
      EXPECT_LT(RelativeError(problem.Together(2, 0, 20, isa.c_str()), oracle), 1e-5)
          << isa << " " << NameOf(dtype);
    }
  }
}

}  // namespace
}  // namespace hearth
