// Bundle rows of every table against the scalar oracle, and the promise that neither the split of
// a list nor that of the columns changes a bit.
#include <memory>

#include "kernels/dispatch.h"
#include "kernels/row_pack.h"
#include "kernels/test_util.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/row_groups.h"

namespace hearth::kernels {
namespace {

using testing::DataKind;
using testing::GuardedArray;
using testing::Placement;
using testing::RandomFloats;

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};
constexpr float kUntouched = -123.5f;

// What there is to know of a row for its test.
struct Row {
  std::vector<std::byte> blocks;  // as in GGUF
  std::vector<float> magnitudes;  // the most that a weight of each block can be, offsets counted in
};

Row RandomRow(DType dtype, int64_t k, std::mt19937& random, DataKind kind) {
  Row row{testing::RandomBlocks(dtype, k, random, kind), {}};
  const float largest_code = dtype == DType::kQ8_0 ? 255 + 128 : 15 + 8;
  for (size_t at = 0; at < row.blocks.size(); at += InfoOf(dtype).block_bytes) {
    HalfBits halves[2];  // the scale, and the minimum where there is one
    std::memcpy(halves, row.blocks.data() + at, sizeof(halves));
    row.magnitudes.push_back(std::abs(HalfToFloat(halves[0])) * largest_code);
    if (dtype == DType::kQ4_1) row.magnitudes.back() += std::abs(HalfToFloat(halves[1]));
  }
  return row;
}

struct Shape {
  DType dtype;
  int64_t k;
  int64_t rows;   // that there are
  int64_t count;  // that are listed
  DataKind kind;
};

// Rows, a list of them and both right-hand sides, on guarded pages.
class Problem {
 public:
  Problem(const Shape& shape, uint32_t seed) : shape_(shape), random_(seed) {
    const RowGroups layout = RowGroupsOf(shape.dtype, shape.k);
    groups_ = layout.groups;
    const auto bytes = static_cast<size_t>(layout.bytes);
    stride_ = bytes + seed % 7;  // gaps, and rows of every alignment
    std::vector<std::byte> all;
    for (int64_t r = 0; r < shape.rows; ++r) {
      rows_.push_back(RandomRow(shape.dtype, shape.k, random_, shape.kind));
      all.resize(static_cast<size_t>(r) * stride_ + bytes, std::byte{0xff});
      PackRow(shape.dtype, rows_.back().blocks.data(), shape.k, all.data() + all.size() - bytes);
    }
    const Placement placement = seed % 2 == 0 ? Placement::kAtEnd : Placement::kAtStart;
    weights_ = std::make_unique<GuardedArray<std::byte>>(all, placement);
    std::vector<int32_t> list;  // random, so that rows repeat; the one at the guard among them
    for (int64_t i = 0; i < shape.count; ++i) {
      list.push_back(static_cast<int32_t>(random_() % static_cast<uint64_t>(shape.rows)));
    }
    if (!list.empty()) list.back() = static_cast<int32_t>(shape.rows - 1);
    list_ = std::make_unique<GuardedArray<int32_t>>(list);
    x_ = RandomFloats(random_, shape.k, shape.kind);
    groups_of_x_ = std::make_unique<GuardedArray<GroupQ8>>(groups_);
    UsableKernels({}).front()->quantize_q8_groups(x_.data(), shape.k, groups_of_x_->data());
    factors_ =
        std::make_unique<GuardedArray<float>>(RandomFloats(random_, shape.count, shape.kind));
    start_ = RandomFloats(random_, shape.k, shape.kind);
  }

  std::vector<float> Dot(const KernelTable& table) {
    return DotInPieces(table, shape_.count, false);
  }

  // With lists of at most `piece` rows.
  std::vector<float> DotInPieces(const KernelTable& table, int64_t piece, bool loads_first) {
    GuardedArray<float> out(std::vector<float>(static_cast<size_t>(shape_.count), kUntouched));
    for (int64_t i = 0; i < shape_.count; i += piece) {
      RowDotArgs args{};
      args.list = ListOf(i, std::min(piece, shape_.count - i));
      args.k = shape_.k;
      args.x = groups_of_x_->data();
      args.out = out.data() + i;
      args.loads_first = loads_first;
      table.row_dot[static_cast<int>(shape_.dtype)](args);
    }
    return out.ToVector();
  }

  std::vector<float> ScaledAdd(const KernelTable& table) {
    return ScaledAddInPieces(table, std::max<int64_t>(shape_.count, 1),
                             std::max<int64_t>(groups_, 1));
  }

  // With lists of at most `rows` rows and ranges of at most `groups` groups.
  std::vector<float> ScaledAddInPieces(const KernelTable& table, int64_t rows, int64_t groups) {
    GuardedArray<float> out(start_);
    for (int64_t g = 0; g < groups_; g += groups) {
      for (int64_t i = 0; i < shape_.count; i += rows) {
        RowScaledAddArgs args{};
        args.list = ListOf(i, std::min(rows, shape_.count - i));
        args.a = factors_->data() + i;
        args.k = shape_.k;
        args.group_begin = g;
        args.group_end = std::min(groups_, g + groups);
        args.out = out.data();
        table.row_scaled_add[static_cast<int>(shape_.dtype)](args);
      }
    }
    return out.ToVector();
  }

  // The whole list on the columns of groups [begin, end) only.
  std::vector<float> ScaledAddOf(const KernelTable& table, int64_t begin, int64_t end) {
    GuardedArray<float> out(start_);
    table.row_scaled_add[static_cast<int>(shape_.dtype)](
        {ListOf(0, shape_.count), factors_->data(), shape_.k, begin, end, out.data()});
    return out.ToVector();
  }

  // The largest difference to the oracle that rounding can explain. A lane adds a value (or two)
  // per group, then lanes are added up; every step rounds in proportion to the magnitudes so far.
  double DotTolerance(int64_t i) {
    const std::vector<float>& magnitudes = rows_[static_cast<size_t>((*list_)[i])].magnitudes;
    double sum = 0;
    for (int64_t b = 0; b < shape_.k / 32; ++b) {
      const GroupQ8& x = (*groups_of_x_)[b / 16];
      double codes = 0;
      for (int j = 0; j < 32; ++j) codes += std::abs(x.codes[j / 4][4 * (b % 16) + j % 4]);
      sum += double{magnitudes[static_cast<size_t>(b)]} * x.scales[b % 16] * codes;
    }
    const double denormals = static_cast<double>(shape_.k) * 1e5 * 0x1p-149;
    return sum * static_cast<double>(2 * groups_ + 8) * testing::kFloatEpsilon + denormals;
  }

  // Likewise for a column of the sum, which both round once per row, the tables twice more.
  double SumTolerance(int64_t column) {
    double sum = std::abs(start_[static_cast<size_t>(column)]);
    for (int64_t i = 0; i < shape_.count; ++i) {
      const Row& row = rows_[static_cast<size_t>((*list_)[i])];
      sum += std::abs(double{(*factors_)[i]}) * row.magnitudes[static_cast<size_t>(column / 32)];
    }
    const double steps = 2 * static_cast<double>(shape_.count) + 4;
    return (sum * testing::kFloatEpsilon + 400 * 0x1p-149) * steps;
  }

  const std::vector<float>& start() const { return start_; }
  int64_t groups() const { return groups_; }

 private:
  RowList ListOf(int64_t first, int64_t count) {
    return {weights_->data(), stride_, list_->data() + first, count};
  }

  Shape shape_;
  std::mt19937 random_;
  int64_t groups_ = 0;
  size_t stride_ = 0;
  std::vector<Row> rows_;
  std::vector<float> x_;
  std::vector<float> start_;
  std::unique_ptr<GuardedArray<std::byte>> weights_;
  std::unique_ptr<GuardedArray<int32_t>> list_;
  std::unique_ptr<GuardedArray<GroupQ8>> groups_of_x_;
  std::unique_ptr<GuardedArray<float>> factors_;
};

class RowsTest : public testing::TableTest {
 protected:
  void CheckDot(Problem& problem, int64_t count) {
    const std::vector<float> expected = problem.Dot(oracle());
    const std::vector<float> actual = problem.Dot(table());
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_NEAR(actual[at], expected[at], problem.DotTolerance(i)) << "row " << i;
    }
    for (const int64_t piece : {int64_t{1}, int64_t{3}, int64_t{5}, int64_t{12}, count}) {
      for (const bool loads_first : {false, true}) {
        EXPECT_EQ(problem.DotInPieces(table(), piece, loads_first), actual)
            << "depends on the split: " << piece << ", or on loads first: " << loads_first;
      }
    }
  }

  void CheckScaledAdd(Problem& problem) {
    const std::vector<float> expected = problem.ScaledAdd(oracle());
    const std::vector<float> actual = problem.ScaledAdd(table());
    for (size_t c = 0; c < actual.size(); ++c) {
      ASSERT_NEAR(actual[c], expected[c], problem.SumTolerance(static_cast<int64_t>(c)))
          << "column " << c;
    }
    for (const int64_t rows : {1, 3, 8, 11}) {
      for (const int64_t groups : {1, 3, 100}) {
        const std::vector<float> pieces = problem.ScaledAddInPieces(table(), rows, groups);
        EXPECT_TRUE(testing::SameBits(pieces.data(), actual.data(), 4 * actual.size()))
            << "depends on the split: " << rows << " rows, " << groups << " groups";
      }
    }
  }

  void Check(const Shape& shape, uint32_t seed) {
    SCOPED_TRACE(::testing::Message() << NameOf(shape.dtype) << " k=" << shape.k
                                      << " count=" << shape.count << " kind=" << int(shape.kind));
    Problem problem(shape, seed);
    CheckDot(problem, shape.count);
    CheckScaledAdd(problem);
  }
};

TEST_P(RowsTest, AgreeWithOracleForAllTailsAndSplits) {
  uint32_t seed = 1;
  for (const DType dtype : kTypes) {
    // One to 35 blocks: last groups of every size, alone and after one and two whole ones.
    // The seed decides which end of the rows is guarded.
    for (int64_t blocks = 1; blocks <= 35; ++blocks) {
      for (int end = 0; end < 2; ++end) {
        Check({dtype, 32 * blocks, 9, 1 + blocks % 19, DataKind::kNormal}, seed++);
      }
    }
  }
}

TEST_P(RowsTest, AgreeWithOracleForListsOfEverySize) {
  uint32_t seed = 1000;
  for (const DType dtype : kTypes) {
    for (int64_t count = 0; count <= 20; ++count) {
      Check({dtype, 256, 1 + count % 3, count, DataKind::kNormal}, seed++);
      Check({dtype, 544, 30, count, DataKind::kNormal}, seed++);
    }
  }
}

TEST_P(RowsTest, AgreeWithOracleForAdversarialData) {
  uint32_t seed = 2000;
  for (const DType dtype : kTypes) {
    for (const DataKind kind : testing::kAllDataKinds) Check({dtype, 928, 7, 13, kind}, seed++);
  }
}

TEST_P(RowsTest, AgreeWithOracleForRealSizes) {
  uint32_t seed = 3000;
  for (const DType dtype : kTypes) {
    for (const int64_t k : {256, 896, 1536, 4096}) {
      Check({dtype, k, 40, 61, DataKind::kNormal}, seed++);
    }
  }
}

// What the promise of a fixed order means: the sum is that of adding row after row.
TEST_P(RowsTest, OrderOfTheListIsTheOrderOfAddition) {
  const Shape shape = {DType::kQ4_0, 512, 2, 2, DataKind::kNormal};
  GuardedArray<std::byte> rows(2 * RowGroupsOf(shape.dtype, shape.k).bytes);
  std::vector<BlockQ4_0> blocks(16);
  for (BlockQ4_0& block : blocks) {
    block.d = FloatToHalf(1.0f);
    std::fill(std::begin(block.qs), std::end(block.qs), uint8_t{0x99});  // ones
  }
  const size_t stride = rows.size() / 2;
  for (int i = 0; i < 2; ++i) {
    PackRow(shape.dtype, reinterpret_cast<const std::byte*>(blocks.data()), shape.k,
            rows.data() + static_cast<size_t>(i) * stride);
  }
  const int32_t list[] = {0, 1, 1};
  const float factors[] = {0x1p30f, 1.0f, -0x1p30f};  // 1 is lost in the first sum
  std::vector<float> out(512, 0.0f);
  RowScaledAddArgs args{{rows.data(), stride, list, 3}, factors, 512, 0, 1, out.data()};
  table().row_scaled_add[static_cast<int>(shape.dtype)](args);
  EXPECT_EQ(out, std::vector<float>(512, 0.0f));
  const float reordered[] = {0x1p30f, -0x1p30f, 1.0f};
  args.a = reordered;
  table().row_scaled_add[static_cast<int>(shape.dtype)](args);
  EXPECT_EQ(out, std::vector<float>(512, 1.0f));
}

TEST_P(RowsTest, ColumnsOutsideTheRangeStay) {
  for (const DType dtype : kTypes) {
    Problem problem({dtype, 1600, 4, 5, DataKind::kNormal}, 77);
    ASSERT_EQ(problem.groups(), 4);
    const std::vector<float> whole = problem.ScaledAdd(table());
    for (int64_t begin = 0; begin <= 4; ++begin) {
      for (int64_t end = begin; end <= 4; ++end) {
        std::vector<float> expected = problem.start();
        for (int64_t c = 512 * begin; c < std::min<int64_t>(512 * end, 1600); ++c) {
          expected[static_cast<size_t>(c)] = whole[static_cast<size_t>(c)];
        }
        EXPECT_EQ(problem.ScaledAddOf(table(), begin, end), expected) << begin << " to " << end;
      }
    }
  }
}

TEST_P(RowsTest, NonFiniteValuesShowInTheResult) {
  for (const DType dtype : kTypes) {
    const auto index = static_cast<size_t>(dtype);
    std::mt19937 random(7);
    const Row row = RandomRow(dtype, 64, random, DataKind::kNormal);
    std::vector<std::byte> packed(static_cast<size_t>(RowGroupsOf(dtype, 64).bytes));
    PackRow(dtype, row.blocks.data(), 64, packed.data());
    const int32_t list[] = {0};
    const RowList rows = {packed.data(), packed.size(), list, 1};
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(64, 1.0f);
      x[40] = bad;
      GroupQ8 group;
      table().quantize_q8_groups(x.data(), 64, &group);
      float out = 0;
      table().row_dot[index]({rows, 64, &group, &out});
      EXPECT_TRUE(std::isnan(out)) << NameOf(dtype);
      std::vector<float> sum(64, 0.0f);
      table().row_scaled_add[index]({rows, &bad, 64, 0, 1, sum.data()});
      for (const float value : sum) EXPECT_FALSE(std::isfinite(value)) << NameOf(dtype);
    }
  }
}

// The blocks of quantize_q8, whose contract this shares, in the order of GroupQ8.
TEST_P(RowsTest, QuantizeGroupsGivesTheBlocksOfQuantize) {
  std::mt19937 random(8);
  for (const DataKind kind : testing::kAllDataKinds) {
    for (int64_t blocks = 0; blocks <= 35; ++blocks) {
      std::vector<float> x = RandomFloats(random, 32 * blocks, kind);
      if (blocks % 5 == 4) x[70] = std::numeric_limits<float>::infinity();
      GuardedArray<float> in(x);
      GuardedArray<GroupQ8> groups((blocks + 15) / 16);
      std::memset(groups.data(), 0xee, groups.size() * sizeof(GroupQ8));
      table().quantize_q8_groups(in.data(), 32 * blocks, groups.data());
      std::vector<BlockQ8> expected(16 * groups.size());
      oracle().quantize_q8(x.data(), 32 * blocks, expected.data(), 1);
      for (size_t b = 0; b < expected.size(); ++b) {
        const GroupQ8& group = groups.data()[b / 16];
        BlockQ8 actual{group.scales[b % 16],
                       -8 * group.sums[b % 16],
                       {},
                       expected[b].minus_8_sum_of_first,  // which groups do not have
                       expected[b].sum};
        for (size_t i = 0; i < 32; ++i) actual.codes[i] = group.codes[i / 4][4 * (b % 16) + i % 4];
        ASSERT_TRUE(testing::SameBits(&actual, &expected[b], sizeof(actual)))
            << "block " << b << " of " << blocks << " kind=" << int(kind);
      }
    }
  }
}

TEST_P(RowsTest, ExistForTheTypesThatHaveRowGroups) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const bool expected = HasRowGroups(static_cast<DType>(i));
    EXPECT_EQ(table().row_dot[i] != nullptr, expected) << i;
    EXPECT_EQ(table().row_scaled_add[i] != nullptr,
              expected || static_cast<DType>(i) == DType::kF16)
        << i;
  }
}

HEARTH_FOR_ALL_TABLES(RowsTest);

}  // namespace
}  // namespace hearth::kernels
