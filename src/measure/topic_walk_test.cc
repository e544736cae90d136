#include "measure/topic_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace hearth {
namespace {

TopicMap Map(int64_t topics, int64_t first, int64_t vocab, double stay = 20) {
  return {.seed = 5, .topics = topics, .stay = stay, .first_token = first, .vocab_size = vocab};
}

TEST(TopicWalkTest, SaysEveryTokenOfTheMapAndNoOther) {
  for (const auto& [topics, first, vocab] : {std::tuple<int64_t, int64_t, int64_t>{1, 0, 1},
                                             {1, 3, 10},
                                             {7, 3, 10},
                                             {7, 259, 300},
                                             {32, 259, 1000},
                                             {3, 100, 103}}) {
    TopicWalk walk(Map(topics, first, vocab, 2));
    std::set<TokenId> seen;
    for (const TokenId token : walk.Take(100 * vocab)) seen.insert(token);
    EXPECT_EQ(*seen.begin(), first);
    EXPECT_EQ(*seen.rbegin(), vocab - 1);
    EXPECT_EQ(static_cast<int64_t>(seen.size()), vocab - first);
  }
}

TEST(TopicWalkTest, StaysInATopicAsLongAsAsked) {
  for (const double stay : {1.0, 4.0, 20.0}) {
    const TopicMap map = Map(9, 259, 2000, stay);
    TopicWalk walk(map);
    std::vector<int64_t> visits(9);
    int64_t last = -1, changes = 0;
    constexpr int64_t kTokens = 200000;
    for (const TokenId token : walk.Take(kTokens)) {
      const int64_t topic = map.TopicOf(token);
      changes += topic != last;
      last = topic;
      ++visits[static_cast<size_t>(topic)];
    }
    EXPECT_NEAR(static_cast<double>(kTokens) / static_cast<double>(changes), stay, 0.05 * stay);
    for (const int64_t count : visits) EXPECT_NEAR(count, kTokens / 9, 0.15 * kTokens / 9);
  }
}

TEST(TopicWalkTest, DependsOnSeedAndNumberAlone) {
  const TopicMap map = Map(32, 259, 32000);
  TopicWalk walk(map), again(map), other(map, 1);
  const std::vector<TokenId> tokens = walk.Take(100);
  EXPECT_EQ(tokens, again.Take(100));
  EXPECT_NE(tokens, other.Take(100));
  TopicMap seeded = map;
  seeded.seed = 6;
  EXPECT_NE(tokens, TopicWalk(seeded).Take(100));
}

TEST(TopicWalkTest, MetadataTellsAllOfIt) {
  GgufMetadata metadata("m.gguf");
  EXPECT_FALSE(TopicMap::FromMetadata(metadata, 100).has_value());
  Map(7, 30, 100).WriteTo(&metadata);
  const std::optional<TopicMap> map = TopicMap::FromMetadata(metadata, 100);
  ASSERT_TRUE(map.has_value());
  EXPECT_EQ(TopicWalk(*map).Take(50), TopicWalk(Map(7, 30, 100)).Take(50));
}

TEST(TopicWalkTest, RefusesMetadataThatIsNoWalk) {
  const auto refusal = [](const TopicMap& map, int64_t vocab) -> std::string {
    GgufMetadata metadata("m.gguf");
    map.WriteTo(&metadata);
    try {
      TopicMap::FromMetadata(metadata, vocab);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      return error.what();
    }
    return "";
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(refusal(Map(7, 30, 37), 37), "");
  EXPECT_THAT(refusal(Map(0, 30, 100), 100), HasSubstr("hearth.synth.topics"));
  EXPECT_THAT(refusal(Map(7, 30, 100), 36), HasSubstr("hearth.synth.first_token"));
  EXPECT_THAT(refusal(Map(7, 101, 100), 100), HasSubstr("hearth.synth.first_token"));
  EXPECT_THAT(refusal(Map(7, 30, 100, 0.5), 100), HasSubstr("hearth.synth.topic_stay"));
  GgufMetadata metadata("m.gguf");
  metadata.SetUint32(kSynthTopicsKey, 3);
  EXPECT_THROW(TopicMap::FromMetadata(metadata, 100), Error);
}

}  // namespace
}  // namespace hearth
