// SentencePiece-style BPE: characters merge by the score of what they become.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/merge.h"
#include "text/tokenizer/vocab_tokenizer.h"

namespace hearth {

class SpmTokenizer final : public VocabTokenizer {
 public:
  // Throws Error(kCorrupt) for scores or byte tokens that make no sense.
  static std::unique_ptr<Tokenizer> Make(const GgufMetadata& metadata);

 protected:
  void EncodeText(std::string_view text, TextPlace place, std::vector<TokenId>* ids) const override;

 private:
  // Where a space is put before a text that the file does not have (kSpacePrefixKey).
  enum class SpacePrefix { kNever, kText, kWord, kFirst };

  SpmTokenizer(Vocabulary vocabulary, const std::vector<Spelling>& spellings,
               std::vector<uint32_t> priorities, SpacePrefix space_prefix);

  static SpacePrefix ReadSpacePrefix(const GgufMetadata& metadata, const std::string& where);
  bool TakesSpace(std::string_view text, TextPlace place) const;

  // One run of text that no merge crosses the ends of.
  void EncodeWord(std::string_view word, MergeScratch* scratch, std::vector<TokenId>* ids) const;
  // A character that is no token.
  void EncodeBytes(std::string_view bytes, std::vector<TokenId>* ids) const;

  // No token holds a space after another character, so that words can be merged one by one.
  bool words_are_separate_ = true;
  SpacePrefix space_prefix_;
  std::vector<uint32_t> priorities_;           // by token; smaller merges first
  std::array<TokenId, 256> byte_tokens_ = {};  // -1 where there is none
};

}  // namespace hearth
