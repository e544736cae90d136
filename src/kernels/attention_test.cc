// Attention scores and values of every table against the scalar oracle.
#include "kernels/test_util.h"
#include "tensor/half.h"
#include "tensor/test_kv_numbers.h"

namespace hearth::kernels {
namespace {

using testing::GuardedArray;
using testing::kFloatEpsilon;
using testing::RandomFloats;

constexpr int64_t kHeadDims[] = {1,  2,  3,  4,  5,  7,  8,  9,  15, 16,  17,  23,  24, 31,
                                 32, 33, 40, 48, 63, 64, 72, 80, 96, 100, 128, 129, 256};

void AppendHalves(std::vector<std::byte>& out, const std::vector<float>& x) {
  for (const float v : x) testing::Append(out, FloatToHalf(v));
}
void AppendCodes(std::vector<std::byte>& out, int64_t n, std::mt19937& random) {
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<std::byte>(random()));
}

// Whole blocks of keys of any type: random numbers, or random codes, scales and zeros.
std::vector<std::byte> RandomKeys(KeyBlockLayout layout, int64_t blocks, std::mt19937& random) {
  const int64_t numbers = layout.head_dim * KeyBlockLayout::kTokens;
  std::vector<std::byte> keys;
  for (int64_t block = 0; block < blocks; ++block) {
    if (layout.keys == KvKeys::kF32) {
      for (const float v : RandomFloats(random, numbers)) testing::Append(keys, v);
    } else if (layout.keys == KvKeys::kF16) {
      AppendHalves(keys, RandomFloats(random, numbers));
    } else {
      AppendCodes(keys, layout.code_bytes(), random);
      AppendHalves(keys, RandomFloats(random, layout.num_ranges() * 2 * KeyBlockLayout::kTokens));
    }
  }
  return keys;
}

// What component i of a key is at most while it is computed with, in magnitude.
double KeyMagnitude(KeyBlockLayout layout, const std::byte* keys, int64_t row, int64_t i) {
  const std::byte* block = keys + row / KeyBlockLayout::kTokens * layout.bytes();
  const hearth::testing::KeyNumber key =
      hearth::testing::KeyAt(layout, block, row % KeyBlockLayout::kTokens, i);
  return std::abs(double{key.zero}) + std::abs(double{key.scale}) * key.code;
}

// Rows of values of any type. fp8 codes are all but that of NaN.
std::vector<std::byte> RandomValues(KvValues type, int64_t n, std::mt19937& random) {
  std::vector<std::byte> values;
  if (type == KvValues::kFp8) {
    AppendCodes(values, n, random);
    for (std::byte& code : values) {
      if ((code & std::byte{0x7f}) == std::byte{0x7f}) code = std::byte{0};
    }
  } else if (type == KvValues::kF16) {
    AppendHalves(values, RandomFloats(random, n));
  } else {
    for (const float v : RandomFloats(random, n)) testing::Append(values, v);
  }
  return values;
}

// Distances between queries, scores and outputs leave gaps, which must survive.
constexpr int64_t kGap = 3;
constexpr float kUntouched = -77.5f;

class AttentionTest : public testing::TableTest {
 protected:
  // `skipped` keys of the first block come before those of the scores.
  void CheckScores(KeyBlockLayout layout, int64_t skipped, int64_t count, int64_t queries) {
    const int64_t head_dim = layout.head_dim;
    const int64_t blocks = (skipped + count + KvLayout::kKeyBlock - 1) / KvLayout::kKeyBlock;
    GuardedArray<std::byte> keys(RandomKeys(layout, blocks, random_));
    const int64_t q_stride = head_dim + kGap, stride = count + kGap;
    GuardedArray<float> q(RandomFloats(random_, queries * q_stride - kGap));
    const auto run = [&](const KernelTable& kernels, int64_t first, int64_t n, int64_t query,
                         int64_t num_queries) {
      std::vector<float> out(static_cast<size_t>(queries * stride), kUntouched);
      const int64_t block = (skipped + first) / KvLayout::kKeyBlock;
      kernels.attn_scores[static_cast<int>(layout.keys)](
          {q.data() + query * q_stride, q_stride, num_queries, keys.data() + block * layout.bytes(),
           (skipped + first) % KvLayout::kKeyBlock, n, head_dim,
           out.data() + query * stride + first, stride});
      return out;
    };
    const std::vector<float> expected = run(oracle(), 0, count, 0, queries);
    const std::vector<float> actual = run(table(), 0, count, 0, queries);
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < stride; ++j) {
        const auto at = static_cast<size_t>(i * stride + j);
        if (j >= count) {
          ASSERT_EQ(actual[at], kUntouched);
          continue;
        }
        double size = 0;
        for (int64_t d = 0; d < head_dim; ++d) {
          size += std::abs(double{q[i * q_stride + d]}) *
                  KeyMagnitude(layout, keys.data(), skipped + j, d);
        }
        const double steps = static_cast<double>(head_dim) / 4 + 8;
        ASSERT_NEAR(actual[at], expected[at], size * steps * kFloatEpsilon);
        // One query and position alone give the same bits.
        ASSERT_EQ(run(table(), j, 1, i, 1)[at], actual[at]);
      }
    }
  }

  void CheckValues(KvValues type, int64_t count, int64_t head_dim, int64_t queries) {
    const int64_t bytes = BytesOf(type);
    GuardedArray<std::byte> values(RandomValues(type, count * head_dim, random_));
    std::vector<std::byte> some_scales;
    AppendHalves(some_scales, RandomFloats(random_, count));
    GuardedArray<std::byte> scales(some_scales);
    const int64_t stride = head_dim + kGap, weight_stride = count + kGap;
    GuardedArray<float> weights(RandomFloats(random_, queries * weight_stride));
    const std::vector<float> before = RandomFloats(random_, queries * stride - kGap);
    const auto run = [&](const KernelTable& kernels, std::vector<float> start, int64_t first,
                         int64_t n, int64_t query, int64_t num_queries) {
      GuardedArray<float> out(start);
      kernels.attn_values[static_cast<int>(type)](
          {.weights = weights.data() + query * weight_stride + first,
           .weight_stride = weight_stride,
           .queries = num_queries,
           .values = values.data() + first * head_dim * bytes,
           .count = n,
           .head_dim = head_dim,
           .out = out.data() + query * stride,
           .out_stride = stride,
           .next = {},
           .scales = scales.data() + first * KeyBlockLayout::kHalfBytes});
      return out.ToVector();
    };
    const std::vector<float> expected = run(oracle(), before, 0, count, 0, queries);
    const std::vector<float> actual = run(table(), before, 0, count, 0, queries);
    const auto scale_of = [&](int64_t j) {
      return type == KvValues::kFp8 ? std::abs(hearth::testing::HalfAt(scales.data() + 2 * j))
                                    : 1.0f;
    };
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t d = 0; d < (i + 1 < queries ? stride : head_dim); ++d) {
        const auto at = static_cast<size_t>(i * stride + d);
        double size = std::abs(before[at]);
        for (int64_t j = 0; d < head_dim && j < count; ++j) {
          const float value =
              hearth::testing::ValueAt(type, values.data() + (j * head_dim + d) * bytes);
          size += std::abs(double{weights[i * weight_stride + j]} * scale_of(j) * value);
        }
        const double tolerance =
            d < head_dim ? size * static_cast<double>(count + 3) * kFloatEpsilon : 0;
        ASSERT_NEAR(actual[at], expected[at], tolerance);
      }
    }
    // Positions in two calls and queries one by one give the same bits.
    const int64_t first = count / 3;
    std::vector<float> pieces = before;
    for (int64_t i = 0; i < queries; ++i) {
      pieces = run(table(), pieces, 0, first, i, 1);
      pieces = run(table(), pieces, first, count - first, i, 1);
    }
    ASSERT_EQ(pieces, actual);
  }

  // A running softmax in calls of at most `step` scores against the oracle's.
  void CheckWeights(int64_t count, int64_t step, int64_t queries, float spread) {
    constexpr int64_t kHeadDim = 37;
    const int64_t stride = count + kGap, out_stride = kHeadDim + kGap;
    std::vector<float> scores = RandomFloats(random_, queries * stride - kGap);
    for (float& score : scores) score *= spread;
    // What came before is the first call's: nothing.
    const std::vector<float> ones(static_cast<size_t>(queries * out_stride - kGap), 1.0f);
    struct Results {
      std::vector<float> weights, max, sum, out;
    };
    const auto run = [&](const KernelTable& kernels, int64_t query, int64_t n) {
      GuardedArray<float> weights(scores), out(ones);
      std::vector<float> sum(static_cast<size_t>(queries), 0.0f);
      std::vector<float> max(sum.size(), -std::numeric_limits<float>::infinity());
      for (int64_t j = 0; j < count; j += step) {
        kernels.attn_weights({weights.data() + query * stride + j, stride, n,
                              std::min(step, count - j), max.data() + query, sum.data() + query,
                              out.data() + query * out_stride, out_stride, kHeadDim});
        // From the second call on, outputs are what the running maximum made of ones.
        if (j == 0) std::copy(ones.begin(), ones.end(), out.begin());
      }
      return Results{weights.ToVector(), max, sum, out.ToVector()};
    };
    const Results expected = run(oracle(), 0, queries), actual = run(table(), 0, queries);
    EXPECT_EQ(actual.max, expected.max);
    // The argument of exp is rounded: an error of |score - max| eps in the exponent.
    const double relative = (10 * spread + static_cast<double>(count) + 16) * kFloatEpsilon;
    const auto expect_near = [&](float a, float e) {
      ASSERT_NEAR(a, e, std::abs(e) * relative + 0x1p-125);
    };
    for (size_t i = 0; i < expected.weights.size(); ++i) {
      expect_near(actual.weights[i], expected.weights[i]);
    }
    for (size_t i = 0; i < expected.sum.size(); ++i) expect_near(actual.sum[i], expected.sum[i]);
    for (size_t i = 0; i < expected.out.size(); ++i) expect_near(actual.out[i], expected.out[i]);
    // A query alone gives the same bits and leaves the others as they were.
    const int64_t query = queries / 2;
    const Results alone = run(table(), query, 1);
    EXPECT_EQ(alone.sum[static_cast<size_t>(query)], actual.sum[static_cast<size_t>(query)]);
    for (int64_t i = 0; i < std::ssize(scores); ++i) {
      const auto at = static_cast<size_t>(i);
      const bool is_own = i / stride == query && i % stride < count;
      ASSERT_EQ(alone.weights[at], is_own ? actual.weights[at] : scores[at]);
    }
  }

  std::mt19937 random_{44};
};

TEST_P(AttentionTest, Scores) {
  int64_t queries = 0;
  for (int64_t head_dim : kHeadDims) {
    for (int64_t count : {0, 1, 3, 16, 18, 64, 67}) {
      queries = queries % 9 + 1;
      const int64_t skipped = (head_dim + count) % KvLayout::kKeyBlock;
      for (int keys = 0; keys < kNumKvKeys; ++keys) {
        CheckScores({static_cast<KvKeys>(keys), head_dim}, skipped, count, queries);
      }
    }
  }
}

TEST_P(AttentionTest, Values) {
  int64_t queries = 0;
  for (int64_t head_dim : kHeadDims) {
    for (int64_t count : {0, 1, 2, 7, 33, 70}) {
      queries = queries % 9 + 1;
      for (int values = 0; values < kNumKvValues; ++values) {
        CheckValues(static_cast<KvValues>(values), count, head_dim, queries);
      }
    }
  }
}

TEST_P(AttentionTest, Weights) {
  int64_t queries = 0;
  for (int64_t count : {1, 3, 4, 15, 16, 17, 64, 100}) {
    for (int64_t step : {1, 7, 16, 64, 100}) {
      for (float spread : {1.0f, 40.0f}) {
        queries = queries % 35 + 1;
        CheckWeights(count, step, queries, spread);
      }
    }
  }
}

// Scores far below the maximum weigh nothing, whether they come before it or after it.
TEST_P(AttentionTest, WeightsOfExtremes) {
  for (const float far : {-3e38f, -1e4f, -std::numeric_limits<float>::infinity()}) {
    std::vector<float> scores = {far, far, 0.0f, far, 3.0f, far};
    float max = -std::numeric_limits<float>::infinity(), sum = 0, out = 0;
    const auto run = [&](int64_t first, int64_t count) {
      table().attn_weights({scores.data() + first, 6, 1, count, &max, &sum, &out, 1, 1});
    };
    run(0, 3);
    EXPECT_EQ(max, 0.0f);
    EXPECT_EQ(sum, 1.0f);
    out = 1;
    run(3, 3);
    EXPECT_EQ(max, 3.0f);
    EXPECT_NEAR(out, std::exp(-3.0), kFloatEpsilon);
    EXPECT_NEAR(sum, 1 + std::exp(-3.0), 2 * kFloatEpsilon);
    EXPECT_EQ(scores, (std::vector<float>{0, 0, 1, 0, 1, 0}));
  }
}

HEARTH_FOR_ALL_TABLES(AttentionTest);

}  // namespace
}  // namespace hearth::kernels
