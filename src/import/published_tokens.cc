#include "import/published_tokens.h"

#include <fmt/format.h>

namespace hearth {

Error PublishedTokens::Corrupt(const std::string& what, const std::string& expected,
                               const std::string& found) const {
  return Error(ErrorCode::kCorrupt, path_, what, expected, Printable(found));
}

void PublishedTokens::Place(const std::string& text, const nlohmann::json& id, TokenType type) {
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(max_tokens_)) {
    throw Corrupt("id of token '" + Printable(text) + "'",
                  fmt::format("a number below {}", max_tokens_), id.dump());
  }
  const auto at = id.get<size_t>();
  while (texts.size() <= at) {
    texts.push_back(fmt::format("[unused {}]", texts.size()));
    types.push_back(static_cast<int32_t>(TokenType::kUnused));
  }
  texts[at] = text;
  types[at] = static_cast<int32_t>(type);
  ids_[text] = static_cast<int32_t>(at);
}

void PublishedTokens::PlaceAdded(const PublishedJson& token, const nlohmann::json& id) {
  const std::string text = token.Text("content", "");
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    if (!token.Bool(flag, false)) continue;
    throw Error(ErrorCode::kUnsupported, token.path(),
                fmt::format("'{}' asks for {}, which is not there: such a token takes text beside "
                            "it along",
                            Printable(text), flag));
  }
  Place(text, id, token.Bool("special", false) ? TokenType::kControl : TokenType::kUserDefined);
}

int64_t PublishedTokens::Find(const std::string& text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

}  // namespace hearth
