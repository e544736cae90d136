#include "pipeline/extents/streamed_matrices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>

#include "base/error.h"
#include "ops/repack.h"
#include "storage/async/faulty_file.h"
#include "storage/async/memory_file.h"

namespace hearth {
namespace {

using testing::HasSubstr;

// Where FFNs of random weights lie in a file, and the same in memory.
class Model {
 public:
  struct Sizes {
    int64_t layers = 3;
    int64_t experts = 1;
    int64_t hidden = 64;
    int64_t neurons = 160;
    uint64_t most_bytes = 4096;  // of an extent
  };

  Model(const Sizes& sizes, uint64_t seed) : sizes_(sizes), random_(seed) {
    bytes_.resize(random_() % 5000);  // a header of any length
    for (int64_t l = 0; l < sizes.layers; ++l) {
      // Types differ from layer to layer in real files too, and some are converted.
      AddMatrix(l, FfnMatrix::kGate, DType::kQ4_0, DType::kQ4_0, sizes.neurons, sizes.hidden);
      AddMatrix(l, FfnMatrix::kUp, DType::kF32, DType::kQ8_0, sizes.neurons, sizes.hidden);
      AddMatrix(l, FfnMatrix::kDown, l % 2 == 0 ? DType::kF16 : DType::kQ8_0,
                l % 2 == 0 ? DType::kF16 : DType::kQ8_0, sizes.hidden, sizes.neurons);
    }
  }

  const Sizes& sizes() const { return sizes_; }
  ExtentMap Map() const { return ExtentMap(layers_, sizes_.most_bytes); }

  std::unique_ptr<AsyncFile> File(Budget& budget, uint64_t completion_seed) const {
    Buffer copy(budget, "file", bytes_.size());
    std::memcpy(copy.data(), bytes_.data(), bytes_.size());
    return MakeMemoryFile("model.gguf", std::move(copy),
                          {.alignment_bytes = 512,
                           .memory_alignment_bytes = 512,
                           .completion_seed = completion_seed});
  }

  // The matrix of an expert, in memory.
  WeightView Resident(int64_t layer, int64_t expert, FfnMatrix which) const {
    const size_t index = (static_cast<size_t>(layer * 3) + static_cast<size_t>(which)) *
                             static_cast<size_t>(sizes_.experts) +
                         static_cast<size_t>(expert);
    WeightView view = layers_[static_cast<size_t>(layer)][static_cast<size_t>(which)].view;
    view.data = resident_[index].data();
    return view;
  }

 private:
  void AddMatrix(int64_t layer, FfnMatrix which, DType stored, DType dtype, int64_t rows,
                 int64_t cols) {
    layers_.resize(static_cast<size_t>(sizes_.layers));
    bytes_.resize((bytes_.size() + 31) / 32 * 32);  // GGUF's alignment
    ExtentMatrix& matrix = layers_[static_cast<size_t>(layer)][static_cast<size_t>(which)];
    matrix = {
        .offset = bytes_.size(),
        .experts = sizes_.experts,
        .stored = stored,
        .view = {
            .dtype = dtype, .cols = cols, .rows = rows, .is_tiled = TileLayout::IsTiled(dtype)}};
    std::vector<float> weights(static_cast<size_t>(rows * cols));
    std::normal_distribution<float> normal(0, 0.1f);
    for (int64_t e = 0; e < sizes_.experts; ++e) {
      for (float& w : weights) w = normal(random_);
      std::vector<std::byte> rows_bytes(static_cast<size_t>(rows) * matrix.stored_row_bytes());
      RepackRows(DType::kF32, std::as_bytes(std::span(weights)), rows, cols, stored,
                 rows_bytes.data());
      std::vector<std::byte> scratch;
      resident_.emplace_back(matrix.view.expert_bytes() + Buffer::kReadPadding);
      MakeResident(stored, rows_bytes, rows, matrix.view, resident_.back().data(), scratch);
      bytes_.insert(bytes_.end(), rows_bytes.begin(), rows_bytes.end());
    }
  }

  Sizes sizes_;
  std::mt19937_64 random_;
  std::vector<std::byte> bytes_;
  std::vector<ExtentMap::Layer> layers_;
  std::vector<std::vector<std::byte>> resident_;
};

class StreamedMatricesTest : public testing::Test {
 protected:
  StreamedMatricesTest() {
    for (float& x : x_) x = std::uniform_real_distribution<float>(-1, 1)(random_);
  }

  StreamedMatrices Open(const Model& model, const ExtentPlan& plan, CachePolicyKind policy,
                        FaultScript faults = {}) {
    std::vector<std::unique_ptr<AsyncFile>> files;
    files.push_back(model.File(budget_, 1 + random_() % 1000));
    if (!faults.empty()) {
      files[0] = std::make_unique<FaultyFile>(std::move(files[0]), std::move(faults));
    }
    return StreamedMatrices(budget_, model.Map(), std::move(files), plan, policy);
  }

  ExtentPlan RandomPlan(const Model& model) {
    const int64_t extents = model.Map().num_extents();
    ExtentPlan plan;
    plan.cache_slots = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(extents));
    plan.read_buffers = 2 + static_cast<int64_t>(random_() % 6);
    return plan;
  }

  // The products of one FFN, streamed (where given) or of the model in memory.
  std::vector<float> Products(const Model& model, StreamedMatrices* streamed, int64_t layer,
                              int64_t expert) {
    const int64_t hidden = model.sizes().hidden, neurons = model.sizes().neurons;
    std::vector<float> out(static_cast<size_t>(kTokens * (2 * neurons + hidden)), 7.0f);
    float* at = out.data();
    const auto view = [&](int64_t cols) {
      const FloatView taken = {at, kTokens, cols, cols};
      at += kTokens * cols;
      return taken;
    };
    const FfnProduct gate_up[] = {{FfnMatrix::kGate, view(neurons)},
                                  {FfnMatrix::kUp, view(neurons)}};
    const FfnProduct down[] = {{FfnMatrix::kDown, view(hidden)}};
    const auto multiply = [&](std::span<const FfnProduct> products, int64_t cols) {
      input_.Set({x_.data(), kTokens, cols, cols});
      if (streamed != nullptr) return streamed->Multiply(compute_, expert, products, input_);
      for (const FfnProduct& p : products) {
        const Product product{model.Resident(layer, expert, p.which), p.out};
        MatMul(compute_, {&product, 1}, input_);
      }
    };
    multiply(gate_up, hidden);
    multiply(down, neurons);
    return out;
  }

  // All layers once, some experts of each; what was streamed is what memory gives.
  void RunPass(const Model& model, StreamedMatrices& streamed) {
    streamed.BeginPass();
    for (int64_t layer = 0; layer < model.sizes().layers; ++layer) {
      std::vector<int32_t> experts;
      for (int32_t e = 0; e < model.sizes().experts; ++e) {
        if (model.sizes().experts == 1 || random_() % 3 == 0) experts.push_back(e);
      }
      streamed.BeginLayer(layer, experts, random_() % 2 == 0);
      for (const int32_t e : experts) {
        EXPECT_EQ(Products(model, &streamed, layer, e), Products(model, nullptr, layer, e));
      }
      streamed.EndLayer();
    }
    streamed.EndPass();
  }

  static constexpr int64_t kTokens = 3;
  Budget budget_{uint64_t{1} << 30};
  Compute compute_{"auto", 2};
  std::mt19937_64 random_{5};
  std::array<float, kTokens * 512> x_;
  MatMulInput input_{budget_, kTokens, 512};
};

TEST_F(StreamedMatricesTest, TheMapNumbersEveryRowOnce) {
  const Model model({.layers = 2, .experts = 3}, 1);
  const ExtentMap map = model.Map();
  int64_t seen = 0;
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t expert = 0; expert < 3; ++expert) {
      for (const FfnMatrix which : {FfnMatrix::kGate, FfnMatrix::kUp, FfnMatrix::kDown}) {
        int64_t rows = 0;
        const int32_t first = map.FirstKey(layer) + map.FirstOf(layer, expert, which);
        for (int64_t i = 0; i < map.CountOf(layer, which); ++i, ++seen) {
          const Extent extent = map.At(first + static_cast<int32_t>(i));
          EXPECT_EQ(extent.matrix, &map.Matrix(layer, which));
          EXPECT_EQ(extent.expert, expert);
          EXPECT_EQ(extent.first_row, rows);
          EXPECT_LE(extent.View(nullptr).expert_bytes(), map.shape().slot_bytes);
          rows += extent.rows;
        }
        EXPECT_EQ(rows, map.Matrix(layer, which).view.rows);
        EXPECT_GT(map.CountOf(layer, which), 1) << "these sizes are to be cut";
      }
    }
  }
  EXPECT_EQ(seen, map.num_extents());
}

TEST_F(StreamedMatricesTest, DenseModelsAreMultipliedAsInMemory) {
  for (int trial = 0; trial < 30; ++trial) {
    const Model model({.layers = 1 + trial % 4, .hidden = 32 * (1 + trial % 3)}, 10 + trial);
    const ExtentPlan plan = RandomPlan(model);
    StreamedMatrices streamed = Open(model, plan, CachePolicyKind::kLru);
    streamed.Fill(compute_, {});
    for (int pass = 0; pass < 3; ++pass) RunPass(model, streamed);
    EXPECT_EQ(streamed.policy(), CachePolicyKind::kStatic);
    const int64_t extents = streamed.map().num_extents();
    if (plan.cache_slots < extents && model.sizes().layers > 1) {
      EXPECT_GT(streamed.counts().bytes_read, 0u);
      EXPECT_NEAR(static_cast<double>(streamed.counts().hits) /
                      static_cast<double>(streamed.counts().neurons),
                  static_cast<double>(plan.cache_slots) / static_cast<double>(extents), 0.2);
    }
  }
}

TEST_F(StreamedMatricesTest, MixturesAreMultipliedAsInMemory) {
  int trial = 0;
  for (const CachePolicyKind policy : AllCachePolicies()) {
    for (int i = 0; i < 4; ++i, ++trial) {
      const Model model({.layers = 1 + trial % 3, .experts = 2 + trial % 6}, 50 + trial);
      StreamedMatrices streamed = Open(model, RandomPlan(model), policy);
      streamed.Fill(compute_, {});
      for (int pass = 0; pass < 6; ++pass) RunPass(model, streamed);
    }
  }
}

TEST_F(StreamedMatricesTest, KvPagesTakeSlotsAndGiveThemBack) {
  for (int trial = 0; trial < 40; ++trial) {
    const Model model({.layers = 1 + trial % 4, .experts = trial % 2 == 0 ? 1 : 4}, 200 + trial);
    ExtentPlan plan = RandomPlan(model);
    plan.lent = {.count = 1 + static_cast<int64_t>(random_() % 6),
                 .page_bytes = model.Map().shape().slot_bytes * (1 + random_() % 5) / 2};
    const std::span policies = AllCachePolicies();
    StreamedMatrices streamed = Open(model, plan, policies[random_() % policies.size()]);
    streamed.Fill(compute_, {});
    std::set<int64_t> taken;
    for (int pass = 0; pass < 8; ++pass) {
      for (int64_t page = 0; page < plan.lent.count; ++page) {
        if (random_() % 2 == 0) continue;
        if (taken.erase(page) > 0) {
          streamed.kv_slots().Return(page);
          continue;
        }
        streamed.kv_slots().Take(page);
        taken.insert(page);
        std::memset(
            streamed.kv_slots().pages() + static_cast<uint64_t>(page) * plan.lent.page_bytes, 0xff,
            plan.lent.page_bytes);
      }
      RunPass(model, streamed);
    }
  }
}

TEST_F(StreamedMatricesTest, ADenseModelHasWhatItHadWhenPagesCameBack) {
  const Model model({.layers = 4}, 7);
  const int64_t extents = model.Map().num_extents();
  ExtentPlan plan = {.cache_slots = extents / 3, .read_buffers = 3};
  plan.lent = {.count = 2, .page_bytes = model.Map().shape().slot_bytes * 2};
  StreamedMatrices streamed = Open(model, plan, CachePolicyKind::kLru);
  streamed.Fill(compute_, {});
  const auto misses_of_pass = [&] {
    const int64_t before = streamed.counts().misses;
    RunPass(model, streamed);
    return streamed.counts().misses - before;
  };
  RunPass(model, streamed);
  const int64_t at_first = misses_of_pass();
  EXPECT_EQ(at_first, extents - extents / 3 - 4);
  streamed.kv_slots().Take(0);
  RunPass(model, streamed);
  const int64_t grown = misses_of_pass();
  EXPECT_GE(grown, at_first + 2);
  EXPECT_LE(grown, at_first + 3) << "the slots that a page of two touches";
  streamed.kv_slots().Return(0);
  RunPass(model, streamed);
  RunPass(model, streamed);
  EXPECT_EQ(misses_of_pass(), at_first);
}

TEST_F(StreamedMatricesTest, ThoseInMemoryComeFirstWhereAsked) {
  const Model model({.layers = 1, .experts = 4}, 3);
  const ExtentMap map = model.Map();
  const ExtentPlan plan = {.cache_slots = 2 * map.CountOfFfn(0), .read_buffers = 2};
  StreamedMatrices streamed = Open(model, plan, CachePolicyKind::kLru);
  const auto run = [&](std::vector<int32_t> experts, bool reorder) {
    streamed.BeginPass();
    streamed.BeginLayer(0, experts, reorder);
    for (const int32_t e : experts) Products(model, &streamed, 0, e);
    streamed.EndLayer();
    return experts;
  };
  run({2, 3}, true);
  EXPECT_EQ(run({0, 3}, true), (std::vector<int32_t>{3, 0})) << "2 and 3 were in memory";
  EXPECT_EQ(run({2, 3}, false), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(streamed.counts().hits, 2 * map.CountOfFfn(0));
}

TEST_F(StreamedMatricesTest, AFailedReadFailsThePassAndTheNextOneWorks) {
  for (int trial = 0; trial < 40; ++trial) {
    const Model model({.layers = 3, .experts = trial % 2 == 0 ? 1 : 5}, 100 + trial);
    const int64_t slots = 1 + static_cast<int64_t>(random_() % 10);
    // Reads of the warm start come before; none of the extents needs two.
    const auto first = static_cast<uint64_t>(slots) + random_() % 12;
    StreamedMatrices streamed = Open(
        model, {.cache_slots = slots, .read_buffers = 2 + trial % 4}, CachePolicyKind::kLru,
        {{.kind = trial % 3 == 0 ? FaultKind::kShortRead : FaultKind::kError, .nth_read = first}});
    streamed.Fill(compute_, {});
    int failures = 0;
    for (int pass = 0; pass < 6; ++pass) {
      try {
        RunPass(model, streamed);
      } catch (const Error& error) {
        ++failures;
        EXPECT_EQ(error.code(), ErrorCode::kIo);
        EXPECT_THAT(error.what(), HasSubstr("model.gguf"));
      }
    }
    EXPECT_EQ(failures, 1) << trial;
  }
}

TEST_F(StreamedMatricesTest, ChargesWhatItSays) {
  const Model model({.experts = 4}, 1);
  const ExtentPlan plan = {
      .cache_slots = 9, .read_buffers = 3, .lent = {.count = 3, .page_bytes = 5000}};
  Budget budget(uint64_t{1} << 30);
  std::vector<std::unique_ptr<AsyncFile>> files;
  files.push_back(model.File(budget_, 0));
  const StreamedMatrices streamed(budget, model.Map(), std::move(files), plan,
                                  CachePolicyKind::kLru);
  EXPECT_EQ(budget.used_bytes(),
            StreamedMatrices::ChargedBytes(model.Map(), plan, CachePolicyKind::kLru));
  EXPECT_EQ(budget.Ledger().at("kv cache"), 15000u);
}

}  // namespace
}  // namespace hearth
