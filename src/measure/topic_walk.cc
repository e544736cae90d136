#include "measure/topic_walk.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace hearth {
namespace {

// Apart from the streams that the seed's weights are drawn from.
constexpr uint64_t kWalkStream = uint64_t{1} << 62;

// GGUF's vocabularies are below this (model/model_spec.cc).
constexpr uint64_t kMaxVocab = uint64_t{1} << 24;

[[noreturn]] void Refuse(const GgufMetadata& metadata, std::string_view key,
                         const std::string& expected, const std::string& found) {
  throw Error(ErrorCode::kCorrupt, metadata.file_name(), std::string(key), expected, found);
}

}  // namespace

std::optional<TopicMap> TopicMap::FromMetadata(const GgufMetadata& metadata, int64_t vocab_size) {
  if (!metadata.Has(kSynthTopicsKey)) return std::nullopt;
  const uint64_t topics = metadata.GetUint(kSynthTopicsKey);
  const uint64_t first = metadata.GetUint(kSynthFirstTokenKey);
  const double stay = metadata.GetFloat(kSynthTopicStayKey);
  const auto vocab = static_cast<uint64_t>(vocab_size);
  if (topics < 1 || topics > kMaxVocab) {
    Refuse(metadata, kSynthTopicsKey, fmt::format("1 to {}", kMaxVocab), std::to_string(topics));
  }
  if (first > vocab || vocab - first < topics) {
    Refuse(metadata, kSynthFirstTokenKey,
           fmt::format("a token of each of {} topics in a vocabulary of {}", topics, vocab),
           std::to_string(first));
  }
  if (!(stay >= 1 && stay <= 1e9)) {
    Refuse(metadata, kSynthTopicStayKey, "1 to 1e9", fmt::format("{}", stay));
  }
  return TopicMap{.seed = metadata.GetUint(kSynthSeedKey),
                  .topics = static_cast<int64_t>(topics),
                  .stay = stay,
                  .first_token = static_cast<int64_t>(first),
                  .vocab_size = vocab_size};
}

void TopicMap::WriteTo(GgufMetadata* metadata) const {
  metadata->SetUint64(kSynthSeedKey, seed);
  metadata->SetUint32(kSynthTopicsKey, static_cast<uint32_t>(topics));
  metadata->SetFloat32(kSynthTopicStayKey, static_cast<float>(stay));
  metadata->SetUint32(kSynthFirstTokenKey, static_cast<uint32_t>(first_token));
}

TopicWalk::TopicWalk(const TopicMap& map, uint64_t number)
    : map_(map),
      random_(StreamOf(map.seed, kWalkStream, number)),
      topic_(static_cast<int64_t>(random_.NextBelow(static_cast<uint64_t>(map.topics)))) {}

TokenId TopicWalk::Next() {
  const int64_t topics = map_.topics;
  // The topic's tokens are low, low + topics, ...
  const int64_t low = map_.first_token + ((topic_ - map_.first_token) % topics + topics) % topics;
  const int64_t count = (map_.vocab_size - 1 - low) / topics + 1;
  const auto pick = static_cast<int64_t>(random_.NextBelow(static_cast<uint64_t>(count)));
  if (topics > 1 && random_.NextUnit() * map_.stay < 1) {
    const auto step = static_cast<int64_t>(random_.NextBelow(static_cast<uint64_t>(topics - 1)));
    topic_ = (topic_ + 1 + step) % topics;
  }
  return static_cast<TokenId>(low + pick * topics);
}

std::vector<TokenId> TopicWalk::Take(int64_t count) {
  std::vector<TokenId> tokens(static_cast<size_t>(std::max<int64_t>(count, 0)));
  for (TokenId& token : tokens) token = Next();
  return tokens;
}

}  // namespace hearth
