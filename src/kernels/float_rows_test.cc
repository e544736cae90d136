// Rows of float weights of every table: dot products and sums against the scalar oracle, and the
// promises that nothing but the operands and the order of a list changes a bit.
#include <memory>

#include "kernels/dequantize.h"
#include "kernels/test_util.h"
#include "tensor/row_groups.h"

namespace hearth::kernels {
namespace {

using testing::DataKind;
using testing::GuardedArray;
using testing::Placement;
using testing::RandomFloats;

constexpr auto kF16 = static_cast<size_t>(DType::kF16);

std::vector<std::byte> AsHalves(const std::vector<float>& values) {
  std::vector<std::byte> halves(2 * values.size());
  Convert(DType::kF32, reinterpret_cast<const std::byte*>(values.data()),
          static_cast<int64_t>(values.size()), DType::kF16, halves.data());
  return halves;
}

// Rows of halves against a guard, some bytes apart so that they have every alignment, what they are
// worth, a list of them, and tokens.
class Problem {
 public:
  Problem(int64_t columns, int64_t num_rows, int64_t count, uint32_t seed,
          DataKind kind = DataKind::kNormal)
      : k(columns), rows(num_rows), random_(seed) {
    const auto row_bytes = static_cast<size_t>(2 * k);
    stride = row_bytes + seed % 7;
    std::vector<std::byte> all(stride * static_cast<size_t>(rows - 1) + row_bytes, std::byte{0xff});
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<std::byte> halves = AsHalves(RandomFloats(random_, k, DataKind::kNormal));
      std::copy(halves.begin(), halves.end(), all.begin() + r * static_cast<int64_t>(stride));
      std::vector<float> values(static_cast<size_t>(k));
      Dequantize(DType::kF16, halves.data(), k, values.data());
      weights.push_back(std::move(values));
    }
    bytes = std::make_unique<GuardedArray<std::byte>>(
        all, seed % 2 == 0 ? Placement::kAtEnd : Placement::kAtStart);
    for (int64_t i = 0; i < count; ++i) {
      list.push_back(static_cast<int32_t>(random_() % static_cast<uint64_t>(rows)));
    }
    if (!list.empty()) list.back() = static_cast<int32_t>(rows - 1);
    x = std::make_unique<GuardedArray<float>>(RandomFloats(random_, k, kind));
    factors = RandomFloats(random_, count, kind);
    start = RandomFloats(random_, k, kind);
  }

  RowList List(int64_t first, int64_t number) const {
    return {bytes->data(), stride, list.data() + first, number};
  }
  int64_t count() const { return static_cast<int64_t>(list.size()); }

  // With lists of at most `piece` rows.
  std::vector<float> Dot(const KernelTable& table, int64_t piece) const {
    GuardedArray<float> out(std::vector<float>(list.size(), -1.0f));
    for (int64_t i = 0; i < count(); i += piece) {
      table.float_row_dot[kF16](
          {List(i, std::min(piece, count() - i)), k, x->data(), out.data() + i});
    }
    return out.ToVector();
  }

  // With lists of at most `piece` rows and ranges of at most `groups` groups.
  std::vector<float> ScaledAdd(const KernelTable& table, int64_t piece, int64_t groups) const {
    GuardedArray<float> out(start);
    const int64_t all = RowGroupCount(k);
    for (int64_t g = 0; g < all; g += groups) {
      for (int64_t i = 0; i < count(); i += piece) {
        table.row_scaled_add[kF16]({List(i, std::min(piece, count() - i)), factors.data() + i, k, g,
                                    std::min(all, g + groups), out.data()});
      }
    }
    return out.ToVector();
  }

  // What rounding can explain: a lane adds a product per vector, then the lanes are added up. Each
  // step rounds in proportion to the magnitudes so far, the oracle once.
  double DotTolerance(size_t i) const {
    const std::vector<float>& row = weights[static_cast<size_t>(list[i])];
    double sum = 0;
    for (size_t c = 0; c < row.size(); ++c) sum += std::abs(double{row[c]} * x->data()[c]);
    return (sum * testing::kFloatEpsilon + 0x1p-149) * static_cast<double>(k / 4 + 8);
  }

  // Likewise for a column of the sum, which both round once per row.
  double SumTolerance(size_t column) const {
    double sum = std::abs(double{start[column]});
    for (size_t i = 0; i < list.size(); ++i) {
      sum += std::abs(double{factors[i]} * weights[static_cast<size_t>(list[i])][column]);
    }
    return (sum * testing::kFloatEpsilon + 0x1p-149) * static_cast<double>(2 * list.size() + 2);
  }

  int64_t k, rows;
  size_t stride = 0;
  std::vector<std::vector<float>> weights;
  std::unique_ptr<GuardedArray<std::byte>> bytes;
  std::vector<int32_t> list;
  std::unique_ptr<GuardedArray<float>> x;
  std::vector<float> factors, start;

 private:
  std::mt19937 random_;
};

class FloatRowsTest : public testing::TableTest {
 protected:
  void Check(const Problem& problem) {
    const std::vector<float> dots = problem.Dot(oracle(), 100), dot = problem.Dot(table(), 100);
    for (size_t i = 0; i < dot.size(); ++i) {
      ASSERT_NEAR(dot[i], dots[i], problem.DotTolerance(i)) << "row " << i << " k=" << problem.k;
    }
    for (const int64_t piece : {1, 3, 5}) EXPECT_EQ(problem.Dot(table(), piece), dot) << piece;
    const std::vector<float> sums = problem.ScaledAdd(oracle(), 100, 100);
    const std::vector<float> sum = problem.ScaledAdd(table(), 100, 100);
    for (size_t c = 0; c < sum.size(); ++c) {
      ASSERT_NEAR(sum[c], sums[c], problem.SumTolerance(c)) << "column " << c;
    }
    for (const int64_t piece : {1, 3, 8, 11}) {
      for (const int64_t groups : {1, 3}) {
        EXPECT_EQ(problem.ScaledAdd(table(), piece, groups), sum) << piece << " " << groups;
      }
    }
  }
};

TEST_P(FloatRowsTest, AgreeWithOracleForAllTailsAndSplits) {
  uint32_t seed = 1;
  for (int64_t blocks = 1; blocks <= 35; ++blocks) {
    for (int end = 0; end < 2; ++end) Check(Problem(32 * blocks, 9, 1 + blocks % 19, seed++));
  }
  for (int64_t count = 0; count <= 20; ++count) Check(Problem(544, 1 + count % 3, count, seed++));
  for (const DataKind kind : testing::kAllDataKinds) Check(Problem(928, 7, 13, seed++, kind));
  Check(Problem(4096, 40, 61, seed));
}

// So that prompts, whose gates are such products, compute what single tokens do.
TEST_P(FloatRowsTest, DotProductsAreTheBitsOfMatMul) {
  uint32_t seed = 100;
  for (const int64_t blocks : {1, 2, 3, 7, 16, 33, 128}) {
    Problem problem(32 * blocks, 13, 0, seed++);
    for (int32_t r = 0; r < 13; ++r) problem.list.push_back(r);
    const std::vector<float> dots = problem.Dot(table(), 100);
    std::vector<float> twice(problem.x->data(), problem.x->data() + problem.k);
    for (int copies = 0; copies < 5; ++copies) {
      twice.insert(twice.end(), problem.x->data(), problem.x->data() + problem.k);
    }
    for (const int64_t tokens : {1, 6}) {
      std::vector<float> out(static_cast<size_t>(13 * tokens));
      table().matmul[kF16]({problem.bytes->data(), problem.stride, problem.k, twice.data(),
                            problem.k, tokens, out.data(), 13, 0, 13});
      for (int64_t t = 0; t < tokens; ++t) {
        EXPECT_TRUE(testing::SameBits(out.data() + 13 * t, dots.data(), 13 * sizeof(float)))
            << blocks << " blocks, token " << t;
      }
    }
  }
}

TEST_P(FloatRowsTest, ARowTimesTokensGivesTheBitsOfEveryToken) {
  uint32_t seed = 200;
  for (const int64_t blocks : {1, 3, 7, 16, 37, 128}) {
    const Problem problem(32 * blocks, 3, 0, seed++);
    std::mt19937 random(seed);
    const int64_t tokens = 11, stride = problem.k + 5;
    GuardedArray<float> x(RandomFloats(random, tokens * stride - 5, DataKind::kNormal));
    const std::vector<int32_t> listed = {10, 0, 3, 3, 7, 1, 2, 9, 5};
    for (size_t count = 0; count <= listed.size(); ++count) {
      GuardedArray<float> out(std::vector<float>(count, -1.0f));
      table().float_row_times_tokens[kF16]({problem.bytes->data() + problem.stride, problem.k,
                                            x.data(), stride, listed.data(),
                                            static_cast<int64_t>(count), out.data()});
      for (size_t i = 0; i < count; ++i) {
        const int32_t row = 1;
        float expected = 0;
        table().float_row_dot[kF16]({{problem.bytes->data(), problem.stride, &row, 1},
                                     problem.k,
                                     x.data() + listed[i] * stride,
                                     &expected});
        ASSERT_EQ(out.data()[i], expected) << blocks << " " << i;
      }
    }
  }
}

// Rows ascending in their places, some tokens with none of them and some with all.
TEST_P(FloatRowsTest, SumsOfTokensAreTheBitsOfScaledAdds) {
  uint32_t seed = 300;
  for (const int64_t blocks : {1, 2, 3, 4, 7, 13, 16, 17}) {
    Problem problem(32 * blocks, blocks == 16 ? kRowsOfBatch : 1 + seed % kRowsOfBatch, 0, seed);
    for (int64_t r = 0; r < problem.rows; ++r) problem.list.push_back(static_cast<int32_t>(r));
    std::mt19937 random(seed++);
    std::shuffle(problem.list.begin(), problem.list.end(), random);
    const int64_t tokens = 9, stride = problem.k + 3;
    std::vector<int32_t> begin, end, places;
    std::vector<float> a;
    const std::vector<float> start = RandomFloats(random, tokens * stride - 3, DataKind::kNormal);
    std::vector<float> expected = start;
    for (int64_t t = 0; t < tokens; ++t) {
      begin.push_back(static_cast<int32_t>(places.size()));
      std::vector<int32_t> listed;
      for (int32_t r = 0; r < problem.rows; ++r) {
        if (static_cast<int64_t>(random() % 8) >= t) continue;
        places.push_back(r);
        listed.push_back(problem.list[static_cast<size_t>(r)]);
        a.push_back(static_cast<float>(random() % 1000) - 499.5f);
      }
      end.push_back(static_cast<int32_t>(places.size()));
      table().row_scaled_add[kF16]({{problem.bytes->data(), problem.stride, listed.data(),
                                     static_cast<int64_t>(listed.size())},
                                    a.data() + begin.back(),
                                    problem.k,
                                    0,
                                    RowGroupCount(problem.k),
                                    expected.data() + t * stride});
    }
    GuardedArray<float> out(start);
    table().float_rows_to_tokens[kF16]({problem.List(0, problem.count()), problem.k, tokens,
                                        begin.data(), end.data(), places.data(), a.data(),
                                        out.data(), stride});
    EXPECT_TRUE(testing::SameBits(out.data(), expected.data(), 4 * expected.size())) << blocks;
  }
}

TEST_P(FloatRowsTest, OrderOfTheListIsTheOrderOfAddition) {
  Problem problem(64, 1, 3, 7);
  const std::vector<std::byte> ones = AsHalves(std::vector<float>(64, 1.0f));
  std::copy(ones.begin(), ones.end(), problem.bytes->begin());
  problem.start.assign(64, 0.0f);
  problem.factors = {0x1p30f, 1.0f, -0x1p30f};  // 1 is lost in the first sum
  EXPECT_EQ(problem.ScaledAdd(table(), 100, 1), std::vector<float>(64, 0.0f));
  problem.factors = {0x1p30f, -0x1p30f, 1.0f};
  EXPECT_EQ(problem.ScaledAdd(table(), 100, 1), std::vector<float>(64, 1.0f));
}

TEST_P(FloatRowsTest, ColumnsOutsideTheRangeStay) {
  const Problem problem(1600, 4, 5, 78);
  const std::vector<float> whole = problem.ScaledAdd(table(), 100, 100);
  for (int64_t begin = 0; begin <= 4; ++begin) {
    for (int64_t end = begin; end <= 4; ++end) {
      GuardedArray<float> out(problem.start);
      table().row_scaled_add[kF16](
          {problem.List(0, 5), problem.factors.data(), 1600, begin, end, out.data()});
      std::vector<float> expected = problem.start;
      for (int64_t c = 512 * begin; c < std::min<int64_t>(512 * end, 1600); ++c) {
        expected[static_cast<size_t>(c)] = whole[static_cast<size_t>(c)];
      }
      EXPECT_EQ(out.ToVector(), expected) << begin << " to " << end;
    }
  }
}

TEST_P(FloatRowsTest, NonFiniteValuesShowInTheResult) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Problem problem(64, 1, 1, 5);
    problem.x->data()[40] = bad;
    EXPECT_FALSE(std::isfinite(problem.Dot(table(), 1)[0]));
    problem.factors[0] = bad;
    for (const float v : problem.ScaledAdd(table(), 1, 1)) EXPECT_FALSE(std::isfinite(v));
  }
}

TEST_P(FloatRowsTest, ExistForF16Alone) {
  for (size_t i = 0; i < kNumDTypes; ++i) {
    EXPECT_EQ(table().float_row_dot[i] != nullptr, i == kF16) << i;
    EXPECT_EQ(table().float_row_times_tokens[i] != nullptr, i == kF16) << i;
    EXPECT_EQ(table().float_rows_to_tokens[i] != nullptr, i == kF16) << i;
  }
}

HEARTH_FOR_ALL_TABLES(FloatRowsTest);

}  // namespace
}  // namespace hearth::kernels
