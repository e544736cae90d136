#include "ops/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/dequantize.h"
#include "kernels/test_encoders.h"
#include "kernels/test_weights.h"
#include "ops/elementwise.h"
#include "ops/repack.h"
#include "tensor/half.h"

namespace hearth {
namespace {

// A random matrix of any type, with the float values that its stored form stands for.
struct Matrix {
  std::vector<std::byte> stored;
  std::vector<float> values;
  WeightView view;

  Matrix(DType dtype, int64_t rows, int64_t cols, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    values.resize(static_cast<size_t>(rows * cols));
    for (float& v : values) v = normal(random);
    stored.resize(RowBytes(dtype, static_cast<size_t>(cols)) * static_cast<size_t>(rows));
    if (kernels::CanQuantize(dtype)) {
      kernels::Quantize(dtype, values.data(), rows * cols, stored.data());
    } else if (kernels::test_encoders::CanEncode(dtype)) {
      stored = kernels::test_encoders::Encode(dtype, values);
    } else {
      stored = kernels::testing::RandomWeights(dtype, values.size(), random, 1.0f);
    }
    kernels::Dequantize(dtype, stored.data(), rows * cols, values.data());
    view = {.data = stored.data(), .dtype = dtype, .cols = cols, .rows = rows};
    if (!TileLayout::IsTiled(dtype)) return;
    view.is_tiled = true;
    std::vector<std::byte> tiles(view.expert_bytes());
    PackTiles(dtype, stored, rows, cols, tiles.data());
    stored.swap(tiles);
    view.data = stored.data();
  }
};

struct Input {
  std::vector<float> values;
  FloatView view;
  Input(int64_t rows, int64_t cols, unsigned seed) : values(static_cast<size_t>(rows * cols)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& v : values) v = normal(random);
    view = {values.data(), rows, cols, cols};
  }
};

class LinearTest : public ::testing::TestWithParam<DType> {
 protected:
  // At least `cols` columns that make whole blocks of the type.
  int64_t Cols(int64_t cols) const { return RoundUp<int64_t>(cols, InfoOf(GetParam()).block_size); }

  Budget budget_;
};

TEST_P(LinearTest, AgreesWithTheProductOfTheStoredValues) {
  const int64_t cols = Cols(96);
  for (const std::string& isa : UsableIsaNames()) {
    Compute compute(isa, 2);
    for (const int64_t tokens : {1, 3, 33, 70}) {
      const Matrix a(GetParam(), 37, cols, 1), b(GetParam(), 5, cols, 2);
      const Input x(tokens, cols, 3);
      std::vector<float> bias(37, 0.25f);
      std::vector<float> out_a(static_cast<size_t>(tokens) * 40), out_b(out_a.size());
      MatMulInput input(budget_, tokens, cols);
      input.Set(x.view);
      const Product products[] = {{a.view, {out_a.data(), tokens, 37, 40}, bias.data()},
                                  {b.view, {out_b.data(), tokens, 5, 40}}};
      MatMul(compute, products, input);
      // int8 activations are off by up to half a step of 1/127 of a block's largest value.
      const double tolerance =
          TileLayout::IsTiled(GetParam()) ? 0.035 * std::sqrt(static_cast<double>(cols)) : 1e-4;
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < 37; ++r) {
          double expected = 0.25;
          for (int64_t i = 0; i < cols; ++i) {
            expected += static_cast<double>(a.values[static_cast<size_t>(r * cols + i)]) *
                        static_cast<double>(x.values[static_cast<size_t>(t * cols + i)]);
          }
          EXPECT_NEAR(out_a[static_cast<size_t>(t * 40 + r)], expected, tolerance) << isa;
        }
      }
      EXPECT_NE(out_b[0], 0.0f);
      EXPECT_EQ(out_b[5], 0.0f) << "nothing is written beyond a product's rows";
    }
  }
}

// With activations of 11 bits nothing but those digits and float sums is lost, and no result
// depends on which tokens, threads or lists it comes with.
TEST_P(LinearTest, ActivationsOf11BitsAreExactButForTheirDigits) {
  const int64_t cols = Cols(288), rows = 37;
  const auto width = static_cast<size_t>(cols);
  for (const std::string& isa : UsableIsaNames()) {
    Compute compute(isa, 2), alone(isa, 1);
    const Matrix w(GetParam(), rows, cols, 21);
    for (const int64_t tokens : {1, 4, 7, 70}) {
      const Input x(tokens, cols, 22);
      std::vector<float> out(static_cast<size_t>(tokens * rows)), of_one(rows), listed(out.size());
      MatMulInput input(budget_, tokens, cols, TileActivations::kF16);
      input.Set(x.view);
      const Product product{w.view, {out.data(), tokens, rows, rows}};
      MatMul(compute, {&product, 1}, input);
      for (int64_t t = 0; t < tokens; ++t) {
        const float* of_token = x.view.row(t);
        for (int64_t r = 0; r < rows; ++r) {
          double expected = 0, magnitude = 0;
          for (size_t i = 0; i < width; ++i) {
            const float rounded =
                w.view.is_tiled ? HalfToFloat(FloatToHalf(of_token[i])) : of_token[i];
            const double weight = double{w.values[static_cast<size_t>(r) * width + i]};
            expected += weight * rounded;
            magnitude += std::abs(weight * rounded);
          }
          EXPECT_NEAR(out[static_cast<size_t>(t * rows + r)], expected, magnitude * 4e-6 + 1e-12)
              << isa << " " << tokens;
        }
      }
      const int64_t last = tokens - 1;
      MatMulInput single(budget_, 1, cols, TileActivations::kF16);
      single.Set(x.view.Rows(last, 1));
      const Product one{w.view, {of_one.data(), 1, rows, rows}};
      MatMul(alone, {&one, 1}, single);
      EXPECT_TRUE(std::equal(of_one.begin(), of_one.end(), out.begin() + last * rows)) << isa;
      const std::vector<int32_t> list = {0, 5, 16, 36};
      const std::vector<std::span<const int32_t>> active(static_cast<size_t>(tokens), list);
      MatMulActive(compute, {w.view, {listed.data(), tokens, rows, rows}}, input, active);
      for (const int32_t r : list) {
        const auto at = static_cast<size_t>(last * rows + r);
        EXPECT_EQ(listed[at], out[at]) << isa;
      }
    }
  }
}

// Binary16 ends at 65,504; large activations of some models do not.
TEST_P(LinearTest, ActivationsOf11BitsDoNotOverflow) {
  Compute compute("auto", 1);
  const int64_t cols = Cols(32);
  const auto width = static_cast<size_t>(cols);
  const Matrix w(GetParam(), 3, cols, 23);
  std::vector<float> x(width, 0.0f), out(3);
  for (const float large : {65504.0f, 65505.0f, 70000.0f, -3e9f}) {
    x[1] = large;
    MatMulInput input(budget_, 1, cols, TileActivations::kF16);
    input.Set({x.data(), 1, cols, cols});
    const Product product{w.view, {out.data(), 1, 3, 3}};
    MatMul(compute, {&product, 1}, input);
    for (size_t r = 0; r < 3; ++r) {
      const double expected = double{w.values[r * width + 1]} * large;
      EXPECT_NEAR(out[r], expected, std::abs(expected) * 0x1p-10) << large;
    }
  }
  MatMulInput int8(budget_, 1, cols), floats(budget_, 1, cols, TileActivations::kF16);
  int8.Set({x.data(), 1, cols, cols});
  floats.Set({x.data(), 1, cols, cols});
  EXPECT_THROW(int8.Rounded(compute), Error);
  EXPECT_THROW(floats.Quantized(compute), Error);
}

TEST_P(LinearTest, RowsOnOneThreadHaveTheSameBits) {
  const int64_t cols = Cols(96);
  for (const std::string& isa : UsableIsaNames()) {
    Compute compute(isa, 2);
    const int64_t rows = 2 * kMatMulRowGrain + 37;
    const Matrix w(GetParam(), rows, cols, 9);
    const std::vector<float> bias(static_cast<size_t>(rows), -0.5f);
    for (const int64_t tokens : {1, 2, 8, 33}) {
      const Input x(tokens, cols, 10);
      std::vector<float> expected(static_cast<size_t>(tokens * rows)), out(expected.size(), 7.0f);
      MatMulInput input(budget_, tokens, cols);
      input.Set(x.view);
      const Product whole{w.view, {expected.data(), tokens, rows, rows}, bias.data()};
      MatMul(compute, {&whole, 1}, input);
      input.Set(x.view);
      const Product parts{w.view, {out.data(), tokens, rows, rows}, bias.data()};
      const kernels::BlockQ8* q8 = w.view.is_tiled ? input.QuantizedAlone(compute) : nullptr;
      for (const int64_t begin : {kMatMulRowGrain, int64_t{0}, 2 * kMatMulRowGrain}) {
        MatMulRows(compute, parts, x.view, q8, begin, std::min(begin + kMatMulRowGrain, rows));
      }
      EXPECT_EQ(out, expected) << isa << " " << tokens;
    }
  }
}

TEST_P(LinearTest, ActiveRowsHaveTheSameBitsAndOthersAreZero) {
  Compute compute("auto", 2);
  const int64_t cols = Cols(64);
  const Matrix w(GetParam(), 50, cols, 4);
  const Input x(3, cols, 5);
  std::vector<float> dense(150), sparse(150, 7.0f);
  MatMulInput input(budget_, 3, cols);
  input.Set(x.view);
  const Product product{w.view, {dense.data(), 3, 50, 50}};
  MatMul(compute, {&product, 1}, input);
  const std::vector<int32_t> lists[] = {{0, 7, 8, 49}, {}, {3}};
  const std::span<const int32_t> active[] = {lists[0], lists[1], lists[2]};
  MatMulActive(compute, {w.view, {sparse.data(), 3, 50, 50}}, input, active);
  for (size_t t = 0; t < 3; ++t) {
    for (int32_t r = 0; r < 50; ++r) {
      const bool is_active = std::find(lists[t].begin(), lists[t].end(), r) != lists[t].end();
      const size_t at = t * 50 + static_cast<size_t>(r);
      EXPECT_EQ(sparse[at], is_active ? dense[at] : 0.0f);
    }
  }
}

// An embedding that is the output matrix as well lies in tiles.
TEST_P(LinearTest, RowsAreFoundInTilesToo) {
  Compute compute("auto", 2);
  const int64_t cols = Cols(96);
  const auto width = static_cast<size_t>(cols);
  const Matrix w(GetParam(), 37, cols, 8);
  std::vector<float> out(3 * width);
  const int32_t ids[] = {36, 0, 17};
  LookUpRows(compute, w.view, ids, {out.data(), 3, cols, cols});
  for (size_t i = 0; i < 3; ++i) {
    for (size_t c = 0; c < width; ++c) {
      EXPECT_EQ(out[i * width + c], w.values[static_cast<size_t>(ids[i]) * width + c]);
    }
  }
}

// What doctor measured, in place of the solver's choice.
TEST_P(LinearTest, MeasuredTilesChangeNoBit) {
  constexpr int64_t kTokens = 25, kRows = 37;
  const int64_t cols = Cols(96);
  const Matrix w(GetParam(), kRows, cols, 11);
  const Input x(kTokens, cols, 12);
  for (const std::string& isa : UsableIsaNames()) {
    Compute compute(isa, 1);
    MatMulInput input(budget_, kTokens, cols);
    std::vector<float> expected(kTokens * kRows), out(expected.size());
    const auto multiply = [&](std::vector<float>& to) {
      input.Set(x.view);
      const Product product{w.view, {to.data(), kTokens, kRows, kRows}};
      MatMul(compute, {&product, 1}, input);
    };
    multiply(expected);
    for (const TileGeometry& geometry :
         kernels::TileGeometries(compute.kernels().tile_unit, kTokens)) {
      compute.UseTiles(std::vector<TilesForTokens>{{kTokens, geometry}});
      multiply(out);
      EXPECT_EQ(out, expected) << isa << " panel " << geometry.panel_tokens;
    }
  }
}

TEST_P(LinearTest, RefusesOperandsThatDoNotFit) {
  Compute compute("scalar", 1);
  const Matrix w(GetParam(), 4, Cols(64), 6);
  const Input x(1, Cols(64) + 32, 7);
  std::vector<float> out(4);
  MatMulInput input(budget_, 1, x.view.cols);
  input.Set(x.view);
  const Product product{w.view, {out.data(), 1, 4, 4}};
  EXPECT_THROW(MatMul(compute, {&product, 1}, input), Error);
}

// All types with a kernel.
std::vector<DType> Types() {
  std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16};
  for (const TileFormat& format : kTileFormats) types.push_back(format.dtype);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, LinearTest, ::testing::ValuesIn(Types()),
                         [](const auto& param_info) { return NameOf(param_info.param); });

}  // namespace
}  // namespace hearth
