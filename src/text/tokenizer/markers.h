// What tokens of a vocabulary mean by their texts: ends of answers, and markers that only special
// parsing yields.
#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace hearth {

// Types tokens as control that end an answer by their text although the file calls them ordinary:
// what such a token stands for is never shown, and merging never yields it.
void TypeEndMarkers(Vocabulary* vocabulary);

// Ids of markers that end an answer by their text, ascending.
std::vector<TokenId> FindEndMarkers(const Vocabulary& vocabulary);

// The marker that ends a turn of a chat; -1 where there is none.
TokenId FindTurnEnd(const Vocabulary& vocabulary);

// The control or user-defined token with this text; -1 where there is none.
TokenId FindMarker(const Vocabulary& vocabulary, std::string_view text);

// The first id of tokens that were added to a SentencePiece vocabulary after it was trained: no
// piece of the vocabulary comes after them. Its size where there are none.
size_t FirstAddedToken(const Vocabulary& vocabulary);

// By token, whether it is user-defined and yet yielded by special parsing only. Words, white space
// and single characters are text; so is what SentencePiece itself yields, unless `chat_template`
// (all templates of the file, joined) writes it or it ends answers. Everything else could open or
// close a turn.
std::vector<bool> FindUserDefinedMarkers(const Vocabulary& vocabulary,
                                         std::string_view chat_template);

}  // namespace hearth
