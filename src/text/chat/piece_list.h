// Collects the pieces of a conversation.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/chat_piece.h"

namespace hearth {

// Neighbours of the same kind become one, empty ones none.
class PieceList {
 public:
  void Marker(std::string_view text) { Add(text, true); }
  void Content(std::string_view text) { Add(text, false); }
  bool empty() const { return pieces_.empty(); }
  std::vector<ChatPiece> Take() { return std::move(pieces_); }

 private:
  void Add(std::string_view text, bool trusted) {
    if (text.empty()) return;
    if (!pieces_.empty() && pieces_.back().trusted == trusted) {
      pieces_.back().text += text;
    } else {
      pieces_.push_back({std::string(text), trusted});
    }
  }

  std::vector<ChatPiece> pieces_;
};

}  // namespace hearth
