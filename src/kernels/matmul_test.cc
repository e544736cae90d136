// Products of float weights of every table against the scalar oracle, and the promise that the
// result of a row and a token does not depend on how the work was split.
#include <memory>

#include "kernels/test_util.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

using testing::Append;
using testing::DataKind;
using testing::GuardedArray;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

std::vector<std::byte> RandomRow(DType dtype, int64_t k, std::mt19937& random, DataKind kind) {
  std::vector<std::byte> row;
  for (int64_t i = 0; i < k; ++i) {
    const float v = RandomFloat(random, kind);
    if (dtype == DType::kF32) Append(row, v);
    if (dtype == DType::kF16) Append(row, FloatToHalf(std::clamp(v, -6e4f, 6e4f)));
    if (dtype == DType::kBF16) Append(row, FloatToBf16(v));
  }
  return row;
}

// One product with its operands on guarded pages. Strides leave gaps, which must survive.
class Problem {
 public:
  Problem(DType dtype, int64_t k, int64_t rows, int64_t tokens, DataKind kind, uint32_t seed)
      : dtype_(dtype), k_(k), rows_(rows), tokens_(tokens) {
    std::mt19937 random(seed);
    row_bytes_ = RowBytes(dtype, static_cast<size_t>(k)) + (seed % 2);  // odd: misaligned rows
    std::vector<std::byte> weights;
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<std::byte> row = RandomRow(dtype, k, random, kind);
      weights.insert(weights.end(), row.begin(), row.end());
      if (r + 1 < rows) weights.resize(static_cast<size_t>(r + 1) * row_bytes_);
    }
    weights_ = std::make_unique<GuardedArray<std::byte>>(weights);
    MakeActivations(random, kind);
  }

  MatMulArgs Args(float* out, int64_t out_stride) {
    MatMulArgs args{};
    args.weights = weights_->data();
    args.row_bytes = row_bytes_;
    args.k = k_;
    args.x = floats_->data();
    args.x_stride = x_stride_;
    args.tokens = tokens_;
    args.out = out;
    args.out_stride = out_stride;
    args.row_begin = 0;
    args.row_end = rows_;
    return args;
  }

  // out[t][r], computed with one call.
  std::vector<float> Run(const KernelTable& table) {
    constexpr float kUntouched = -123.5f;
    const int64_t stride = rows_ + 3;
    const int64_t size = tokens_ == 0 ? 0 : (tokens_ - 1) * stride + rows_;
    GuardedArray<float> out(std::vector<float>(static_cast<size_t>(size), kUntouched));
    table.matmul[static_cast<int>(dtype_)](Args(out.data(), stride));
    std::vector<float> result;
    for (int64_t i = 0; i < size; ++i) {
      if (i % stride < rows_) {
        result.push_back(out[i]);
      } else {
        EXPECT_EQ(out[i], kUntouched) << "wrote between the rows";
      }
    }
    return result;
  }

  // The same from many calls: pieces of rows (of sizes 1, 2, 3, ...) times single tokens.
  std::vector<float> RunInPieces(const KernelTable& table) {
    std::vector<float> result(static_cast<size_t>(tokens_ * rows_));
    for (int64_t t = 0; t < tokens_; ++t) {
      int64_t piece = 1;
      for (int64_t begin = 0; begin < rows_; begin += piece++) {
        MatMulArgs args = Args(result.data() + t * rows_ + begin, rows_);
        args.x += t * x_stride_;
        args.tokens = 1;
        args.row_begin = begin;
        args.row_end = std::min(rows_, begin + piece);
        table.matmul[static_cast<int>(dtype_)](args);
      }
    }
    return result;
  }

  // Largest error that rounding can explain for out[t][r]. A lane of the narrowest table (NEON)
  // adds k/4 products; every step rounds once, in proportion to the sum of magnitudes so far.
  double Tolerance(int64_t t, int64_t r) {
    const std::byte* w = weights_->data() + static_cast<size_t>(r) * row_bytes_;
    double magnitude = 0;
    for (int64_t i = 0; i < k_; ++i) {
      magnitude += std::abs(WeightAt(w, i) * (*floats_)[t * x_stride_ + i]);
    }
    const double denormals = static_cast<double>(k_) * 0x1p-149;  // products that underflow
    return magnitude * (static_cast<double>(k_ / 4) + 8) * testing::kFloatEpsilon + denormals;
  }

 private:
  void MakeActivations(std::mt19937& random, DataKind kind) {
    x_stride_ = k_ + 1;
    const int64_t size = tokens_ == 0 ? 0 : (tokens_ - 1) * x_stride_ + k_;
    floats_ = std::make_unique<GuardedArray<float>>(testing::RandomFloats(random, size, kind));
  }

  static uint16_t HalfAt(const std::byte* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof(bits));
    return bits;
  }

  double WeightAt(const std::byte* w, int64_t i) const {
    if (dtype_ == DType::kF16) return HalfToFloat(HalfAt(w + 2 * i));
    if (dtype_ == DType::kBF16) return Bf16ToFloat(HalfAt(w + 2 * i));
    float v;
    std::memcpy(&v, w + 4 * i, sizeof(v));
    return v;
  }

  DType dtype_;
  int64_t k_;
  int64_t rows_;
  int64_t tokens_;
  int64_t x_stride_ = 0;
  size_t row_bytes_ = 0;
  std::unique_ptr<GuardedArray<std::byte>> weights_;
  std::unique_ptr<GuardedArray<float>> floats_;
};

class MatMulTest : public testing::TableTest {
 protected:
  void Check(DType dtype, int64_t k, int64_t rows, int64_t tokens, DataKind kind, uint32_t seed) {
    SCOPED_TRACE(::testing::Message() << NameOf(dtype) << " k=" << k << " rows=" << rows
                                      << " tokens=" << tokens << " kind=" << int(kind));
    Problem problem(dtype, k, rows, tokens, kind, seed);
    const std::vector<float> expected = problem.Run(oracle());
    const std::vector<float> actual = problem.Run(table());
    ASSERT_EQ(actual.size(), static_cast<size_t>(rows * tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        const size_t i = static_cast<size_t>(t * rows + r);
        ASSERT_NEAR(actual[i], expected[i], problem.Tolerance(t, r)) << "t=" << t << " r=" << r;
      }
    }
    const std::vector<float> pieces = problem.RunInPieces(table());
    EXPECT_TRUE(testing::SameBits(pieces.data(), actual.data(), actual.size() * sizeof(float)))
        << "depends on the split";
  }
};

TEST_P(MatMulTest, AgreesWithOracleForAllTailsAndSplits) {
  uint32_t seed = 1;
  for (DType dtype : kTypes) {
    for (int64_t step = 0; step < 40; ++step) {
      // Every tail of up to 16 lanes, with and without a whole vector.
      Check(dtype, step, 1 + step % 11, 1 + step % 9, DataKind::kNormal, seed++);
    }
  }
}

TEST_P(MatMulTest, AgreesWithOracleForAllTileShapes) {
  uint32_t seed = 1000;
  for (DType dtype : kTypes) {
    for (int64_t rows = 0; rows <= 9; ++rows) {
      for (int64_t tokens = 0; tokens <= 9; ++tokens) {
        Check(dtype, 96, rows, tokens, DataKind::kNormal, seed++);
      }
    }
  }
}

TEST_P(MatMulTest, AgreesWithOracleForAdversarialData) {
  uint32_t seed = 2000;
  for (DType dtype : kTypes) {
    for (DataKind kind : testing::kAllDataKinds) Check(dtype, 160, 6, 5, kind, seed++);
  }
}

// More rows than one panel, long rows.
TEST_P(MatMulTest, AgreesWithOracleForRealSizes) {
  uint32_t seed = 3000;
  for (DType dtype : kTypes) {
    Check(dtype, 4096, 67, 6, DataKind::kNormal, seed++);
    Check(dtype, 14336, 9, 2, DataKind::kNormal, seed++);
  }
}

HEARTH_FOR_ALL_TABLES(MatMulTest);

}  // namespace
}  // namespace hearth::kernels
