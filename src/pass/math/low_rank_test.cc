#include "pass/math/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

// A matrix of floats with a stride of its own.
struct Floats {
  std::vector<float> values;
  FloatView view;

  Floats(int64_t rows, int64_t cols, std::mt19937* random) {
    const int64_t stride = cols + 3;
    values.assign(static_cast<size_t>(rows * stride), 0.0f);
    view = {values.data(), rows, cols, stride};
    if (random == nullptr) return;
    std::uniform_real_distribution<float> number(-1, 1);
    for (float& value : values) value = number(*random);
  }
  Floats(const Floats& other) : values(other.values), view(other.view) {
    view.data = values.data();
  }
};

std::vector<float> RandomMatrix(int64_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> number(-1, 1);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) value = number(random);
  return out;
}

// The term of one row, in double precision: what it adds, and the sum of its magnitudes.
struct Exact {
  double sum = 0;
  double magnitude = 0;
};
Exact ExactOf(const LowRankTerm& term, const FloatView& x, int64_t row, int64_t column) {
  Exact exact;
  for (int64_t i = 0; i < term.rank; ++i) {
    double product = 0, magnitude = 0;
    for (int64_t k = 0; k < x.cols; ++k) {
      const double one = static_cast<double>(x.row(row)[k]) * double{term.a[i * x.cols + k]};
      product += one;
      magnitude += std::abs(one);
    }
    const double b = double{term.b[i * term.columns + column]} * double{term.scale};
    exact.sum += product * b;
    exact.magnitude += magnitude * std::abs(b);
  }
  return exact;
}

TEST(LowRankTest, AddsWhatTheProductsSayForEverySizeAndIsa) {
  std::mt19937 random(1);

  for (const std::string& isa : UsableIsaNames()) {
    Compute compute(isa, 2);
    for (const int64_t cols : {1, 32, 48, 77, 640}) {
      for (const int64_t rank : {1, 3, 8, 17}) {
        const int64_t columns = 1 + static_cast<int64_t>(random() % 600);
        const int64_t rows = 1 + static_cast<int64_t>(random() % 40);
        const std::vector<float> a = RandomMatrix(rank * cols, random);
        const std::vector<float> b = RandomMatrix(rank * columns, random);
        const Floats x(rows, cols, &random);
        Floats out(rows, columns + 5, &random);
        const Floats before = out;
        Floats scratch(rows, rank + 2, nullptr);
        const LowRankTerm term = {.a = a.data(),
                                  .b = b.data(),
                                  .rank = rank,
                                  .columns = columns,
                                  .out = out.view,
                                  .first_row = rows / 3,
                                  .rows = rows - rows / 3,
                                  .scale = 1.75f,
                                  .place = 2};
        AddLowRank(compute, x.view, {&term, 1}, scratch.view);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < out.view.cols; ++c) {
            const double was = before.view.row(r)[c], is = out.view.row(r)[c];
            if (r < term.first_row || c >= columns) {
              ASSERT_EQ(is, was) << "nothing else changes";
              continue;
            }
            const Exact exact = ExactOf(term, x.view, r, c);
            ASSERT_NEAR(is, was + exact.sum, 1e-6 * (exact.magnitude + std::abs(was)) + 1e-7)
                << isa << " " << rank << " x " << cols;
          }
        }
      }
    }
  }
}

// Whatever other rows have, and on however many threads.
TEST(LowRankTest, ARowsBitsAreItsOwn) {
  std::mt19937 random(2);
  constexpr int64_t kCols = 160, kColumns = 300, kRows = 37;
  const std::vector<float> a = RandomMatrix(12 * kCols, random);
  const std::vector<float> b = RandomMatrix(12 * kColumns, random);
  const Floats x(kRows, kCols, &random), start(kRows, kColumns, &random);
  const auto term_of = [&](Floats& out, int64_t first, int64_t rows, int64_t rank) {
    return LowRankTerm{.a = a.data(),
                       .b = b.data(),
                       .rank = rank,
                       .columns = kColumns,
                       .out = out.view,
                       .first_row = first,
                       .rows = rows,
                       .scale = 0.3f};
  };
  Compute alone("auto", 1), many("auto", 3);
  Floats whole = start, apart = start, scratch(kRows, 12, nullptr);
  const LowRankTerm terms[] = {term_of(whole, 0, 20, 12), term_of(whole, 20, 17, 5)};
  AddLowRank(many, x.view, terms, scratch.view);
  for (int64_t r = 0; r < kRows; ++r) {
    const LowRankTerm one = term_of(apart, r, 1, r < 20 ? 12 : 5);
    AddLowRank(alone, x.view, {&one, 1}, scratch.view);
  }
  EXPECT_EQ(whole.values, apart.values);
}

TEST(LowRankTest, RefusesOperandsThatDoNotFit) {
  std::mt19937 random(3);
  Compute compute("auto", 1);
  const std::vector<float> matrix = RandomMatrix(64, random);
  const Floats x(2, 8, &random);
  Floats out(2, 8, &random), scratch(2, 2, nullptr);
  const LowRankTerm good = {
      .a = matrix.data(), .b = matrix.data(), .rank = 2, .columns = 8, .out = out.view, .rows = 2};
  AddLowRank(compute, x.view, {&good, 1}, scratch.view);
  const auto refuses = [&](void (*change)(LowRankTerm&)) {
    LowRankTerm bad = good;
    change(bad);
    EXPECT_THROW(AddLowRank(compute, x.view, {&bad, 1}, scratch.view), Error);
  };
  refuses([](LowRankTerm& term) { term.rank = 3; });
  refuses([](LowRankTerm& term) { term.rank = 0; });
  refuses([](LowRankTerm& term) { term.columns = 9; });
  refuses([](LowRankTerm& term) { term.first_row = 1; });
  refuses([](LowRankTerm& term) { term.place = 1; });
}

}  // namespace
}  // namespace hearth
