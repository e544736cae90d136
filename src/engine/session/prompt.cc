#include "engine/session/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/normal_form.h"

namespace hearth {
namespace {

// Most bytes of a text that one token can stand for; 0 where there is no limit: a byte without a
// token is dropped, or joins the unknown token before it.
size_t LongestTokenBytes(const Tokenizer& tokenizer) {
  const TokenType byte_type = tokenizer.kind() == "llama" ? TokenType::kByte : TokenType::kNormal;
  std::bitset<256> bytes;
  size_t longest = 0;
  for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view spelled = tokenizer.TokenBytes(id);
    if (spelled.size() == 1 && tokenizer.type(id) == byte_type) {
      bytes.set(static_cast<uint8_t>(spelled[0]));
    }
    // The vocabulary's text is longer where SentencePiece's mark stands for a space, and a text
    // may be written with the mark.
    longest = std::max({longest, spelled.size(), tokenizer.VocabularyText(id).size()});
  }
  return bytes.all() ? longest * (tokenizer.normalizes() ? kMostNfcShrink : 1) : 0;
}

}  // namespace

int64_t LeastTokens(const Tokenizer& tokenizer, size_t text_bytes) {
  const size_t longest = LongestTokenBytes(tokenizer);
  return longest == 0 ? 0 : static_cast<int64_t>((text_bytes + longest - 1) / longest);
}

Error ContextFull(std::string_view what, int64_t context, std::string_view found) {
  return {ErrorCode::kContextFull, Field{what},
          fmt::format("This model's maximum context length is {} tokens, but the {} {} {} tokens",
                      context, what, what == "messages" ? "have" : "has", found)};
}

std::vector<TokenId> EncodePrompt(const Model& model, std::string_view text, int64_t context,
                                  EncodeOptions options) {
  const Tokenizer& tokenizer = model.tokenizer();
  const int64_t least = LeastTokens(tokenizer, text.size());
  if (least > context) {
    throw ContextFull("prompt", context, fmt::format("at least {}", least));
  }
  std::vector<TokenId> ids = tokenizer.Encode(text, options);
  const bool has_bos = options.parse_special && !ids.empty() && ids[0] == tokenizer.special().bos;
  if (!has_bos) ids = tokenizer.WithBos(std::move(ids));
  if (!ids.empty()) return ids;
  if (tokenizer.special().bos < 0) {
    throw Error(ErrorCode::kInvalidArgument, model.path(),
                "the model has no BOS to start a text from: give a prompt");
  }
  return {tokenizer.special().bos};
}

std::vector<TokenId> EncodeForEmbedding(const Model& model, std::string_view text,
                                        int64_t context) {
  std::vector<TokenId> ids = EncodePrompt(model, text, context);
  const std::vector<TokenId>& end = model.tokenizer().special().embedding_end;
  ids.insert(ids.end(), end.begin(), end.end());
  return ids;
}

}  // namespace hearth
