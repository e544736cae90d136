#include "text/tokenizer/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/bpe_tokenizer.h"
#include "text/tokenizer/spm_tokenizer.h"
#include "text/tokenizer/vocabulary.h"

namespace hearth {

std::unique_ptr<Tokenizer> Tokenizer::FromGguf(const GgufMetadata& metadata) {
  constexpr char kModelKey[] = "tokenizer.ggml.model";
  const std::string* model = metadata.FindString(kModelKey);
  const std::string where = VocabularyWhere(metadata);
  if (model == nullptr) throw CorruptVocabulary(where, kModelKey, "llama or gpt2", "nothing");
  if (*model == "llama") return SpmTokenizer::Make(metadata);
  if (*model == "gpt2") return BpeTokenizer::Make(metadata);
  throw Error(ErrorCode::kUnsupported, where, kModelKey, "llama or gpt2", Printable(*model));
}

std::vector<TokenId> Tokenizer::EncodeSegments(const std::vector<TextSegment>& segments) const {
  std::vector<TokenId> ids;
  for (const TextSegment& segment : segments) {
    const std::vector<TokenId> more = Encode(segment.text, {segment.parse_special});
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

std::vector<TokenId> Tokenizer::WithBos(std::vector<TokenId> ids) const {
  if (special_.add_bos) ids.insert(ids.begin(), special_.bos);
  return ids;
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), id);
}

std::string Tokenizer::Decode(const std::vector<TokenId>& ids) const {
  std::string text;
  for (const TokenId id : ids) text += TokenBytes(id);
  return text;
}

}  // namespace hearth
