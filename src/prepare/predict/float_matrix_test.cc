#include "prepare/predict/float_matrix.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

FloatMatrix Random(Budget& budget, int64_t rows, int64_t cols, unsigned seed) {
  FloatMatrix out(budget, rows, cols);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& v : out.values()) v = normal(random);
  return out;
}

TEST(FloatMatrixTest, MultipliesByTheTransposed) {
  Budget budget;
  for (const int64_t m : {1, 7, 65}) {
    for (const int64_t n : {1, 33, 130}) {
      for (const int64_t k : {1, 5, 64, 99}) {
        const FloatMatrix a = Random(budget, m, k, 1), b = Random(budget, n, k, 2);
        std::vector<float> first;
        for (const int threads : {1, 3}) {
          Compute compute("auto", threads);
          FloatMatrix out(budget, m, n);
          MultiplyTransposed(compute, budget, a.view(), b.view(), out.view());
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (int64_t c = 0; c < k; ++c) {
                sum += static_cast<double>(a.row(i)[c]) * static_cast<double>(b.row(j)[c]);
              }
              ASSERT_NEAR(out.row(i)[j], sum, 1e-4);
            }
          }
          const std::vector<float> values(out.values().begin(), out.values().end());
          if (first.empty()) first = values;
          EXPECT_EQ(values, first) << "not the same bits for every number of threads";
        }
      }
    }
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(FloatMatrixTest, MultipliesColumnsOfALargerMatrix) {
  Budget budget;
  Compute compute("auto", 2);
  const FloatMatrix wide = Random(budget, 4, 50, 3), b = Random(budget, 6, 20, 4);
  FloatMatrix part(budget, 4, 20), expected(budget, 4, 6), out(budget, 4, 6);
  for (int64_t r = 0; r < 4; ++r) std::copy(wide.row(r) + 10, wide.row(r) + 30, part.row(r));
  MultiplyTransposed(compute, budget, part.view(), b.view(), expected.view());
  FloatView columns = wide.view();
  columns.data += 10;
  columns.cols = 20;
  MultiplyTransposed(compute, budget, columns, b.view(), out.view());
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(out.values()[i], expected.values()[i]);
}

TEST(FloatMatrixTest, Transposes) {
  Budget budget;
  Compute compute("auto", 2);
  for (const int64_t rows : {1, 31, 100}) {
    for (const int64_t cols : {1, 32, 77}) {
      const FloatMatrix in = Random(budget, rows, cols, 5);
      FloatMatrix out(budget, cols, rows);
      Transpose(compute, in.view(), out.view());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(out.row(c)[r], in.row(r)[c]);
      }
    }
  }
}

TEST(FloatMatrixTest, RefusesOperandsThatDoNotFit) {
  Budget budget;
  Compute compute("auto", 1);
  FloatMatrix a(budget, 2, 3), b(budget, 4, 3), wrong(budget, 4, 5), out(budget, 2, 4);
  EXPECT_NO_THROW(MultiplyTransposed(compute, budget, a.view(), b.view(), out.view()));
  EXPECT_THROW(MultiplyTransposed(compute, budget, a.view(), wrong.view(), out.view()), Error);
  EXPECT_THROW(MultiplyTransposed(compute, budget, b.view(), a.view(), out.view()), Error);
  EXPECT_THROW(Transpose(compute, a.view(), out.view()), Error);
}

}  // namespace
}  // namespace hearth
