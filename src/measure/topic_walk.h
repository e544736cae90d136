// The text that models with planted sparsity are measured on (docs/synth.md): a seeded Markov chain
// over topics, told by the file's metadata alone. Tokens of one topic activate similar neurons, so
// that the walk's active sets move as slowly as the file's maker asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/random_words.h"
#include "format/gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

inline constexpr std::string_view kSynthSeedKey = "hearth.synth.seed";
inline constexpr std::string_view kSynthTopicsKey = "hearth.synth.topics";
inline constexpr std::string_view kSynthTopicStayKey = "hearth.synth.topic_stay";
inline constexpr std::string_view kSynthFirstTokenKey = "hearth.synth.first_token";

// Tokens [first_token, vocab_size) belong to topic id % topics; the walk says no others.
struct TopicMap {
  uint64_t seed = 0;
  int64_t topics = 0;
  double stay = 0;          // mean number of tokens from one change of topic to the next
  int64_t first_token = 0;  // at least one token of every topic follows
  int64_t vocab_size = 0;

  int64_t TopicOf(TokenId token) const { return token % topics; }

  // Nothing where the metadata says of no topics. Throws Error(kCorrupt), naming the file, for
  // numbers out of range.
  static std::optional<TopicMap> FromMetadata(const GgufMetadata& metadata, int64_t vocab_size);
  void WriteTo(GgufMetadata* metadata) const;
};

// Which walk is for what. Speeds and hit rates would flatter a plan or profile that learned from
// the tokens that they are measured on: `bench` takes walk 0, and the following ones for sequences
// beside it; what is learned (records for plans, profiles) comes from a walk that it never gets to.
inline constexpr uint64_t kBenchWalk = 0;
inline constexpr uint64_t kLearningWalk = uint64_t{1} << 32;

// An endless text. After every token the topic changes with probability 1 / stay, to any of the
// others alike; the next token is any of the topic's alike.
class TopicWalk {
 public:
  // Walks of one map with different numbers are independent.
  explicit TopicWalk(const TopicMap& map, uint64_t number = 0);

  TokenId Next();
  std::vector<TokenId> Take(int64_t count);

 private:
  TopicMap map_;
  RandomWords random_;
  int64_t topic_;
};

}  // namespace hearth
