// A rendered conversation, in pieces of different origin.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Trusted pieces, which a template or the program wrote, are encoded with special tokens
// recognized, others without, so that what a user types can never become a special token.
struct ChatPiece {
  std::string text;  // UTF-8
  bool trusted = false;
};

// Token ids of the pieces as one text, as the model was trained: ordinary text merges across their
// borders, special tokens are recognized inside of one trusted piece only. BOS comes first where
// the model begins texts with it, and once only: a template may have written it already.
std::vector<TokenId> EncodeChat(const Tokenizer& tokenizer, const std::vector<ChatPiece>& pieces);

}  // namespace hearth
