// Attention scores and values of every table against the scalar oracle.
#include "kernels/test_util.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

using testing::GuardedArray;
using testing::kFloatEpsilon;
using testing::RandomFloats;

constexpr int64_t kHeadDims[] = {1,  2,  3,  4,  5,  7,  8,  9,  15, 16,  17,  23,  24, 31,
                                 32, 33, 40, 48, 63, 64, 72, 80, 96, 100, 128, 129, 256};

std::vector<uint16_t> ToHalf(const std::vector<float>& x) {
  std::vector<uint16_t> half;
  for (float v : x) half.push_back(FloatToHalf(v));
  return half;
}
float ToFloat(float v) { return v; }
float ToFloat(uint16_t v) { return HalfToFloat(v); }

class AttentionTest : public testing::TableTest {
 protected:
  template <class T, class Fn>
  void CheckScores(Fn KernelTable::*kernel, const std::vector<T>& cache, int64_t count,
                   int64_t head_dim) {
    GuardedArray<T> keys(cache);
    GuardedArray<float> q(RandomFloats(random_, head_dim));
    GuardedArray<float> actual(count);
    std::vector<float> expected(static_cast<size_t>(count));
    (oracle().*kernel)(q.data(), keys.data(), count, head_dim, expected.data());
    (table().*kernel)(q.data(), keys.data(), count, head_dim, actual.data());
    for (int64_t j = 0; j < count; ++j) {
      double size = 0;
      for (int64_t d = 0; d < head_dim; ++d) {
        size += std::abs(double{q[d]} * ToFloat(keys[j * head_dim + d]));
      }
      const double steps = static_cast<double>(head_dim) / 4 + 8;
      ASSERT_NEAR(actual[j], expected[static_cast<size_t>(j)], size * steps * kFloatEpsilon);
    }
    // One position alone gives the same bits.
    for (int64_t j = 0; j < count; ++j) {
      float alone = 0;
      (table().*kernel)(q.data(), keys.data() + j * head_dim, 1, head_dim, &alone);
      ASSERT_EQ(alone, actual[j]);
    }
  }

  template <class T, class Fn>
  void CheckValues(Fn KernelTable::*kernel, const std::vector<T>& cache, int64_t count,
                   int64_t head_dim) {
    GuardedArray<T> values(cache);
    GuardedArray<float> weights(RandomFloats(random_, count));
    const std::vector<float> before = RandomFloats(random_, head_dim);
    GuardedArray<float> actual(before);
    std::vector<float> expected = before;
    (oracle().*kernel)(weights.data(), values.data(), count, head_dim, expected.data());
    (table().*kernel)(weights.data(), values.data(), count, head_dim, actual.data());
    for (int64_t d = 0; d < head_dim; ++d) {
      double size = std::abs(before[static_cast<size_t>(d)]);
      for (int64_t j = 0; j < count; ++j) {
        size += std::abs(double{weights[j]} * ToFloat(values[j * head_dim + d]));
      }
      ASSERT_NEAR(actual[d], expected[static_cast<size_t>(d)],
                  size * static_cast<double>(count + 2) * kFloatEpsilon);
    }
    // Positions in two calls give the same bits as in one.
    GuardedArray<float> in_two(before);
    const int64_t first = count / 3;
    (table().*kernel)(weights.data(), values.data(), first, head_dim, in_two.data());
    (table().*kernel)(weights.data() + first, values.data() + first * head_dim, count - first,
                      head_dim, in_two.data());
    if (&table() != &oracle()) {  // which rounds once per call, not once per position
      ASSERT_EQ(in_two.ToVector(), actual.ToVector());
    }
  }

  std::mt19937 random_{44};
};

TEST_P(AttentionTest, Scores) {
  for (int64_t head_dim : kHeadDims) {
    for (int64_t count : {0, 1, 3, 4, 5, 18}) {
      const std::vector<float> cache = RandomFloats(random_, count * head_dim);
      CheckScores(&KernelTable::attn_scores_f32, cache, count, head_dim);
      CheckScores(&KernelTable::attn_scores_f16, ToHalf(cache), count, head_dim);
    }
  }
}

TEST_P(AttentionTest, Values) {
  for (int64_t head_dim : kHeadDims) {
    for (int64_t count : {0, 1, 2, 7, 33}) {
      const std::vector<float> cache = RandomFloats(random_, count * head_dim);
      CheckValues(&KernelTable::attn_values_f32, cache, count, head_dim);
      CheckValues(&KernelTable::attn_values_f16, ToHalf(cache), count, head_dim);
    }
  }
}

HEARTH_FOR_ALL_TABLES(AttentionTest);

}  // namespace
}  // namespace hearth::kernels
