#include "prepare/synth/planted_space.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hearth {
namespace {

constexpr TopicMap kTopics = {
    .seed = 3, .topics = 6, .stay = 20, .first_token = 10, .vocab_size = 400};

TEST(PlantedSpaceTest, BasesAreOrthonormalAndSharedU) {
  for (const auto& [hidden, rank] : {std::pair<int64_t, int64_t>{64, 32}, {90, 33}, {1000, 256}}) {
    const PlantedSpace space(kTopics, hidden, rank, {.mean = 0.8});
    const auto first = space.BasisOf(0), second = space.BasisOf(7);
    EXPECT_EQ(first->rows.size(), static_cast<size_t>((rank + 1) * hidden));
    for (int64_t i = -1; i < rank; ++i) {
      for (int64_t j = -1; j <= i; ++j) {
        EXPECT_NEAR(DotOf(first->Direction(i), first->Direction(j), hidden), i == j, 1e-5);
      }
    }
    EXPECT_NEAR(DotOf(first->u(), second->u(), hidden), 1, 1e-5);
    EXPECT_LT(std::abs(DotOf(first->Direction(0), second->Direction(0), hidden)), 0.6);
    // Asked again, long after, it is the same.
    for (int64_t layer = 1; layer < 7; ++layer) space.BasisOf(layer);
    EXPECT_EQ(space.BasisOf(0)->rows, first->rows);
  }
}

// Tokens of one topic share s of what tells them from others, those of two topics nothing.
TEST(PlantedSpaceTest, EmbeddingsShareUAndTheirTopic) {
  constexpr int64_t kHidden = 4096;
  constexpr double kShare = 0.7;
  const PlantedSpace space(kTopics, kHidden, 32, {.mean = kShare});
  const auto basis = space.BasisOf(0);
  const double along_u = std::sqrt(kCommonShare * kHidden);
  std::vector<std::vector<float>> z;
  for (const TokenId token : {12, 18, 13, 399}) {  // topics 0, 0, 1, 3
    std::vector<float> embedding(kHidden);
    space.Embedding(token, embedding.data());
    EXPECT_NEAR(DotOf(embedding.data(), embedding.data(), kHidden), kHidden, 0.08 * kHidden);
    EXPECT_NEAR(DotOf(embedding.data(), basis->u(), kHidden), along_u, 4);
    AddScaled(static_cast<float>(-along_u), basis->u(), kHidden, embedding.data());
    z.push_back(embedding);
  }
  const double variance = (1 - kCommonShare) * kHidden;
  EXPECT_NEAR(DotOf(z[0].data(), z[1].data(), kHidden), kShare * variance, 0.08 * variance);
  EXPECT_NEAR(DotOf(z[0].data(), z[2].data(), kHidden), 0, 0.08 * variance);
  EXPECT_NEAR(DotOf(z[2].data(), z[3].data(), kHidden), 0, 0.08 * variance);
}

TEST(PlantedSpaceTest, SumsOfEveryLength) {
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<float> a(static_cast<size_t>(n)), b(a.size());
    double expected = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<float>(i) + 1;
      b[i] = 2 - static_cast<float>(i % 5);
      expected += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    EXPECT_EQ(DotOf(a.data(), b.data(), n), expected);
    AddScaled(-2, a.data(), n, b.data());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(b[i], 2 - static_cast<float>(i % 5) - 2 * a[i]);
    }
  }
}

}  // namespace
}  // namespace hearth
