// What both kinds of tokenizer share: the bytes of each token, look-up by text, special tokens in
// text. A kind supplies how ordinary text is encoded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/special_matcher.h"
#include "text/tokenizer/string_index.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocabulary.h"

namespace hearth {

// What a token of the vocabulary stands for.
struct Spelling {
  std::string bytes;       // TokenBytes
  bool may_merge = false;  // merging of ordinary text may yield it
};

// What comes before a run of ordinary text.
enum class TextPlace {
  kStart,        // nothing: the text begins
  kAfterMarker,  // a token that text begins anew after
  kInside,       // a user-defined token that is part of the text
};

class VocabTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options) const override;
  std::vector<TokenId> EncodeSegments(const std::vector<TextSegment>& segments) const override;
  std::string_view TokenBytes(TokenId id) const override;
  TokenId FindToken(std::string_view vocabulary_text) const override;

 protected:
  // One spelling per token.
  VocabTokenizer(Vocabulary vocabulary, const std::vector<Spelling>& spellings);

  // Appends the ids of text without special tokens, which is normalized already.
  virtual void EncodeText(std::string_view text, TextPlace place,
                          std::vector<TokenId>* ids) const = 0;

  // The token that merging may yield for these bytes, -1 where there is none; of several the
  // first. These are all normal tokens: a user's text must not become a control or byte token by
  // merging, and user-defined ones are recognized before.
  TokenId FindMergeable(std::string_view bytes) const {
    return mergeable_index_.Find(bytes, [this](TokenId id) { return TokenBytes(id); });
  }

 private:
  void IndexTokens(const std::vector<Spelling>& spellings);
  void MakeMatchers(const std::vector<bool>& is_marker);

  size_t first_added_ = 0;  // tokens from here on are no part of the text around them
  std::string all_bytes_;
  std::vector<size_t> bytes_begin_;  // one more than tokens
  StringIndex text_index_;           // of VocabularyText
  StringIndex mergeable_index_;      // of TokenBytes
  SpecialMatcher text_tokens_;       // user-defined, and yielded by any text
  SpecialMatcher all_special_;
};

}  // namespace hearth
