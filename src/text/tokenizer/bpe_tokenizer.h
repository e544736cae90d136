// Byte-level BPE: text is cut by the pre-tokenizer, each piece's bytes merge by rank.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/merge.h"
#include "text/tokenizer/pair_table.h"
#include "text/tokenizer/pretokenizers.h"
#include "text/tokenizer/regex_splitter.h"
#include "text/tokenizer/vocab_tokenizer.h"

namespace hearth {

class BpeTokenizer final : public VocabTokenizer {
 public:
  // Throws Error(kUnsupported) for a pre-tokenizer that is not built in and Error(kCorrupt) for
  // merges of tokens that do not exist.
  static std::unique_ptr<Tokenizer> Make(const GgufMetadata& metadata);

 protected:
  void EncodeText(std::string_view text, TextPlace place, std::vector<TokenId>* ids) const override;

 private:
  BpeTokenizer(Vocabulary vocabulary, const std::vector<Spelling>& spellings,
               const PreTokenizer& pre_tokenizer);

  // The ranks of "a b" in the order of the file.
  void AddMerges(const std::vector<std::string>& merges, const std::string& where);
  void EncodePiece(std::string_view piece, MergeScratch* scratch, std::vector<TokenId>* ids) const;

  RegexSplitter splitter_;
  bool ignore_merges_;
  PairTable merges_;
  std::array<TokenId, 256> byte_tokens_ = {};  // -1 where there is none
};

}  // namespace hearth
