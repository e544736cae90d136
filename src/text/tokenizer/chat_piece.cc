#include "text/tokenizer/chat_piece.h"

#include <utility>

namespace hearth {

std::vector<TokenId> EncodeChat(const Tokenizer& tokenizer, const std::vector<ChatPiece>& pieces) {
  std::vector<TextSegment> segments;
  segments.reserve(pieces.size());
  for (const ChatPiece& piece : pieces) segments.push_back({piece.text, piece.trusted});
  std::vector<TokenId> ids = tokenizer.EncodeSegments(segments);
  const bool has_bos = !ids.empty() && ids[0] == tokenizer.special().bos;
  return has_bos ? ids : tokenizer.WithBos(std::move(ids));
}

}  // namespace hearth
