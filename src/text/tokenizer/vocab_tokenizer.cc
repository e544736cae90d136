#include "text/tokenizer/vocab_tokenizer.h"

#include <utility>

#include "text/tokenizer/markers.h"
#include "text/tokenizer/normal_form.h"

namespace hearth {

VocabTokenizer::VocabTokenizer(Vocabulary vocabulary, const std::vector<Spelling>& spellings)
    : first_added_(FirstAddedToken(vocabulary)) {
  kind_ = std::move(vocabulary.kind);
  pre_ = std::move(vocabulary.pre);
  texts_ = std::move(vocabulary.texts);
  types_ = std::move(vocabulary.types);
  special_ = vocabulary.special;
  end_tokens_ = std::move(vocabulary.end_tokens);
  warnings_ = std::move(vocabulary.warnings);
  normalizes_ = vocabulary.nfc.value_or(false);
  bytes_begin_.reserve(spellings.size() + 1);
  for (const Spelling& spelling : spellings) {
    bytes_begin_.push_back(all_bytes_.size());
    all_bytes_ += spelling.bytes;
  }
  bytes_begin_.push_back(all_bytes_.size());
  IndexTokens(spellings);
  MakeMatchers(vocabulary.is_marker);
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

void VocabTokenizer::MakeMatchers(const std::vector<bool>& is_marker) {
  std::vector<SpecialMatcher::Entry> text_tokens;
  std::vector<SpecialMatcher::Entry> all;
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (type(id) == TokenType::kUserDefined) {
      if (!is_marker[i]) text_tokens.push_back({TokenBytes(id), id});
      all.push_back({TokenBytes(id), id});
    } else if (type(id) == TokenType::kControl || type(id) == TokenType::kUnknown) {
      all.push_back({VocabularyText(id), id});
    }
  }
  text_tokens_ = SpecialMatcher(std::move(text_tokens));
  all_special_ = SpecialMatcher(std::move(all));
}

std::vector<TokenId> VocabTokenizer::Encode(std::string_view text, EncodeOptions options) const {
  return EncodeSegments({{text, options.parse_special}});
}

std::vector<TokenId> VocabTokenizer::EncodeSegments(
    const std::vector<TextSegment>& segments) const {
  std::vector<TokenId> ids;
  std::string ordinary;  // text since the last special token
  TextPlace place = TextPlace::kStart;
  const auto flush = [&] {
    if (ordinary.empty()) return;
    EncodeText(normalizes() ? ToNfc(ordinary) : ordinary, place, &ids);
    ordinary.clear();
  };
  for (const TextSegment& segment : segments) {
    const SpecialMatcher& matcher = segment.parse_special ? all_special_ : text_tokens_;
    size_t done = 0;
    while (done < segment.text.size()) {
      const SpecialMatcher::Match match = matcher.FindNext(segment.text, done);
      if (match.length == 0) break;
      ordinary += segment.text.substr(done, match.begin - done);
      flush();
      ids.push_back(match.id);
      const bool is_part =
          type(match.id) == TokenType::kUserDefined && static_cast<size_t>(match.id) < first_added_;
      place = is_part ? TextPlace::kInside : TextPlace::kAfterMarker;
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
