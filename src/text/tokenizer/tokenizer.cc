#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/bpe_tokenizer.h"
#include "text/tokenizer/spm_tokenizer.h"
#include "text/tokenizer/utf8.h"
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

std::string StreamDecoder::Push(TokenId id) {
  pending_ += tokenizer_.TokenBytes(id);
  return TakeComplete(/*at_end=*/false);
}

std::string StreamDecoder::Finish() { return TakeComplete(/*at_end=*/true); }

std::string StreamDecoder::TakeComplete(bool at_end) {
  std::string complete;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Char next = ScanUtf8(rest);
    if (next.status == Utf8Status::kIncomplete && !at_end) break;
    if (next.status == Utf8Status::kComplete) {
      complete += rest.substr(0, next.length);
    } else {
      complete += kReplacementCharacter;
    }
    rest.remove_prefix(next.length);
  }
  pending_ = std::string(rest);
  return complete;
}

std::string DecodeText(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const TokenId id : ids) text += decoder.Push(id);
  text += decoder.Finish();
  // The space comes before ordinary text only, at its beginning or after the token that it begins
  // with.
  const auto first = std::find_if(ids.begin(), ids.end(), [&](TokenId id) {
    return tokenizer.type(id) != TokenType::kControl;
  });
  const bool has_space = tokenizer.adds_space() && first != ids.end() &&
                         tokenizer.type(*first) != TokenType::kUserDefined &&
                         text.rfind(' ', 0) == 0;
  return has_space ? text.substr(1) : text;
}

}  // namespace hearth
