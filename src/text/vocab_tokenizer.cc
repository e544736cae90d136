#include "text/vocab_tokenizer.h"

#include <utility>

namespace hearth {

VocabTokenizer::VocabTokenizer(Vocabulary vocabulary, const std::vector<Spelling>& spellings) {
  kind_ = std::move(vocabulary.kind);
  pre_ = std::move(vocabulary.pre);
  texts_ = std::move(vocabulary.texts);
  types_ = std::move(vocabulary.types);
  special_ = vocabulary.special;
  end_tokens_ = std::move(vocabulary.end_tokens);
  bytes_begin_.reserve(spellings.size() + 1);
  for (const Spelling& spelling : spellings) {
    bytes_begin_.push_back(all_bytes_.size());
    all_bytes_ += spelling.bytes;
  }
  bytes_begin_.push_back(all_bytes_.size());
  IndexTokens(spellings);
  MakeMatchers();
}

void VocabTokenizer::IndexTokens(const std::vector<Spelling>& spellings) {
  text_index_ = StringIndex(texts_.size());
  mergeable_index_ = StringIndex(texts_.size());
  const auto text_of = [this](TokenId id) -> std::string_view { return VocabularyText(id); };
  const auto bytes_of = [this](TokenId id) { return TokenBytes(id); };
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    text_index_.Insert(id, text_of);
    if (spellings[i].may_merge) mergeable_index_.Insert(id, bytes_of);
  }
}

void VocabTokenizer::MakeMatchers() {
  std::vector<SpecialMatcher::Entry> user_defined;
  std::vector<SpecialMatcher::Entry> all;
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (type(id) == TokenType::kUserDefined) {
      user_defined.push_back({TokenBytes(id), id});
      all.push_back({TokenBytes(id), id});
    } else if (type(id) == TokenType::kControl || type(id) == TokenType::kUnknown) {
      all.push_back({VocabularyText(id), id});
    }
  }
  user_defined_ = SpecialMatcher(std::move(user_defined));
  all_special_ = SpecialMatcher(std::move(all));
}

std::vector<TokenId> VocabTokenizer::Encode(std::string_view text, EncodeOptions options) const {
  return EncodeSegments({{text, options.parse_special}});
}

std::vector<TokenId> VocabTokenizer::EncodeSegments(
    const std::vector<TextSegment>& segments) const {
  std::vector<TokenId> ids;
  std::string ordinary;  // text since the last special token
  bool at_start = true;
  const auto flush = [&] {
    if (ordinary.empty()) return;
    EncodeText(ordinary, at_start, &ids);
    ordinary.clear();
    at_start = false;
  };
  for (const TextSegment& segment : segments) {
    const SpecialMatcher& matcher = segment.parse_special ? all_special_ : user_defined_;
    size_t done = 0;
    while (done < segment.text.size()) {
      const SpecialMatcher::Match match = matcher.FindNext(segment.text, done);
      if (match.length == 0) break;
      ordinary += segment.text.substr(done, match.begin - done);
      flush();
      ids.push_back(match.id);
      // A user-defined token is part of the text; what follows it does not begin anew.
      at_start = type(match.id) != TokenType::kUserDefined;
      done = match.begin + match.length;
    }
    ordinary += segment.text.substr(done);
  }
  flush();
  return ids;
}

std::string_view VocabTokenizer::TokenBytes(TokenId id) const {
  const size_t begin = bytes_begin_[static_cast<size_t>(id)];
  return std::string_view(all_bytes_)
      .substr(begin, bytes_begin_[static_cast<size_t>(id) + 1] - begin);
}

TokenId VocabTokenizer::FindToken(std::string_view vocabulary_text) const {
  return text_index_.Find(vocabulary_text,
                          [this](TokenId id) -> std::string_view { return VocabularyText(id); });
}

}  // namespace hearth
