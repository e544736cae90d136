#include "pass/math/spread_heads.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace hearth {
namespace {

constexpr int64_t kHeadDims[] = {1, 2, 3, 5, 16, 63, 64, 65, 80, 96, 112, 128, 192, 256};

class SpreadHeadsTest : public ::testing::Test {
 protected:
  static std::vector<float> Random(int64_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = std::normal_distribution<float>()(random);
    return x;
  }
  // One row of heads; each is one range where none is given.
  std::vector<float> Spread(std::vector<float> x, int64_t head_dim, int64_t range = 0) {
    const auto n = static_cast<int64_t>(x.size());
    SpreadHeads(compute_, {x.data(), 1, n, n}, n / head_dim, head_dim,
                range == 0 ? head_dim : range);
    return x;
  }
  static double Dot(const float* a, const float* b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
    return sum;
  }

  Compute compute_{"scalar", 2};
};

TEST_F(SpreadHeadsTest, DotProductsStayForEveryHeadSize) {
  for (const int64_t head_dim : kHeadDims) {
    const std::vector<float> a = Random(3 * head_dim, 1), b = Random(3 * head_dim, 2);
    const std::vector<float> c = Spread(a, head_dim), d = Spread(b, head_dim);
    for (int64_t head = 0; head < 3; ++head) {
      const int64_t at = head * head_dim;
      const double size =
          std::sqrt(Dot(&a[static_cast<size_t>(at)], &a[static_cast<size_t>(at)], head_dim) *
                    Dot(&b[static_cast<size_t>(at)], &b[static_cast<size_t>(at)], head_dim));
      // Two transforms of at most 8 additions and a product each.
      EXPECT_NEAR(Dot(&c[static_cast<size_t>(at)], &d[static_cast<size_t>(at)], head_dim),
                  Dot(&a[static_cast<size_t>(at)], &b[static_cast<size_t>(at)], head_dim),
                  size * 40 * 0x1p-24)
          << head_dim;
    }
  }
}

// The definition: signs, then H x / sqrt(p), whose entry (i, j) is -1 where i & j has an odd number
// of bits.
TEST_F(SpreadHeadsTest, IsASignedHadamardTransform) {
  for (const int64_t head_dim : {2, 16, 64}) {
    const std::vector<float> x = Random(head_dim, 3);
    const std::vector<float> actual = Spread(x, head_dim);
    for (int64_t i = 0; i < head_dim; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < head_dim; ++j) {
        const bool odd = std::popcount(static_cast<uint64_t>(i & j)) % 2 == 1;
        const bool negated = (static_cast<uint32_t>(j) * 0x9e3779b9u) >> 31 != 0;
        sum += (odd != negated ? -1 : 1) * double{x[static_cast<size_t>(j)]};
      }
      EXPECT_NEAR(actual[static_cast<size_t>(i)], sum / std::sqrt(static_cast<double>(head_dim)),
                  1e-5);
    }
  }
}

// Every range of a head by itself, and a shorter one at the end of a head.
TEST_F(SpreadHeadsTest, TurnsRangesApart) {
  for (const int64_t head_dim : {16, 32, 64, 80, 96, 112}) {
    const std::vector<float> x = Random(2 * head_dim, 4);
    const std::vector<float> actual = Spread(x, head_dim, 32);
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t first = 0; first < head_dim; first += 32) {
        const int64_t at = head * head_dim + first;
        const int64_t size = std::min<int64_t>(32, head_dim - first);
        const std::vector<float> expected = Spread({x.begin() + at, x.begin() + at + size}, size);
        EXPECT_EQ(std::vector<float>(actual.begin() + at, actual.begin() + at + size), expected)
            << head_dim << " " << first;
      }
    }
  }
}

// What it is for: neither one large component nor an offset of all makes a large one.
TEST_F(SpreadHeadsTest, NoComponentStandsOut) {
  for (const int64_t head_dim : {64, 80, 96, 112, 128, 256}) {
    std::vector<float> one(static_cast<size_t>(head_dim)), same(one);
    for (int64_t at = 0; at < head_dim; ++at) {
      std::fill(one.begin(), one.end(), 0.0f);
      one[static_cast<size_t>(at)] = 1;
      for (const float v : Spread(one, head_dim)) EXPECT_LE(std::abs(v), 0.51f) << head_dim;
    }
    std::fill(same.begin(), same.end(), 1.0f);
    for (const float v : Spread(same, head_dim)) {
      EXPECT_LE(std::abs(v), 0.7f * std::sqrt(static_cast<float>(head_dim))) << head_dim;
    }
  }
}

}  // namespace
}  // namespace hearth
