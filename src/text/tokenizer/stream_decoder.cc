#include <algorithm>
#include <utility>

#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/utf8.h"

namespace hearth {

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
  // The space comes before ordinary text only, at its beginning or behind the token that it begins
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
