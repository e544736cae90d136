#include "load/workload.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hearth::load {
namespace {

// Common ones, so that every tokenizer has about a token for each.
constexpr std::array<const char*, 48> kWords = {
    "fox",     "river",  "house", "old",    "small",  "red",    "told",  "found",
    "morning", "road",   "bread", "wind",   "winter", "tree",   "asked", "walked",
    "friend",  "mother", "story", "night",  "garden", "happy",  "stone", "boat",
    "little",  "blue",   "sang",  "looked", "market", "bird",   "apple", "light",
    "summer",  "horse",  "gave",  "ran",    "child",  "father", "song",  "day",
    "forest",  "quiet",  "door",  "bell",   "long",   "green",  "made",  "waited"};
constexpr uint64_t kPrefixStream = 0x9e3779b97f4a7c15;  // a sequence of its own beside the clients'

int64_t Draw(std::mt19937_64& random, const Range& range) {
  // Not std::uniform_int_distribution, whose numbers differ between standard libraries.
  const auto count = static_cast<uint64_t>(range.most - range.least) + 1;
  return range.least + static_cast<int64_t>(random() % count);
}

void AddWords(std::mt19937_64& random, int64_t count, std::string& text) {
  for (int64_t i = 0; i < count; ++i) {
    if (!text.empty()) text += ' ';
    text += kWords[random() % kWords.size()];
  }
}

}  // namespace

Range ParseRange(const std::string& option, const std::string& text, int64_t least, int64_t most) {
  Range range;
  const char* const end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, range.least);
  range.most = range.least;
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
    parsed = std::from_chars(parsed.ptr + 1, end, range.most);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end || range.least < least || range.most > most ||
      range.least > range.most) {
    throw Error(ErrorCode::kInvalidArgument, option, "range",
                "N or N-M from " + std::to_string(least) + " to " + std::to_string(most),
                "'" + Printable(text) + "'");
  }
  return range;
}

Workload::Workload(const WorkloadOptions& options, int client)
    : options_(options), random_(options.seed * 1'000'003 + static_cast<uint64_t>(client)) {}

Workload::Request Workload::Next() {
  std::mt19937_64 prefix(options_.seed ^ kPrefixStream);
  std::string prompt;
  AddWords(prefix, options_.shared_prefix_words, prompt);
  AddWords(random_, Draw(random_, options_.prompt_words), prompt);
  nlohmann::json body = {{"max_tokens", Draw(random_, options_.tokens)},
                         {"seed", random_() >> 33},
                         {"temperature", 0.8},
                         {"stream", true},
                         {"stream_options", {{"include_usage", true}}}};
  if (options_.is_chat) {
    body["messages"] = {{{"role", "user"}, {"content", "Tell a story of these: " + prompt}}};
    return {"/v1/chat/completions", body.dump()};
  }
  body["prompt"] = prompt;
  return {"/v1/completions", body.dump()};
}

}  // namespace hearth::load
