// Blocks in which models think before they answer: "<think> ... </think>".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/tokenizer/chat_piece.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

struct Thinking {
  std::string begin;
  std::string end;
  bool is_open = false;       // the prompt ends with `begin`; else an answer may begin with it
  bool has_channels = false;  // Harmony (harmony.h): answers are messages of several channels
};

// The marks that a chat template (its Jinja source) knows; nothing where it knows none.
std::optional<Thinking> DetectThinking(std::string_view jinja_template);

// The channels of Harmony.
Thinking HarmonyChannels();

// How the answer to this conversation, rendered up to the assistant's turn, may begin with a block
// of these marks. Nothing where it has none: the prompt ends with one that is closed.
std::optional<Thinking> ThinkingAfter(Thinking marks, const std::vector<ChatPiece>& pieces);

// With marks, not channels: answers that are texts of `answer` after a block of any text. Where the
// block is not open they may do without one. Marks that are control tokens of the model stand as
// such (ControlTokenBytes). Throws Error(kUnsupported) where that is too large a grammar.
std::shared_ptr<const Grammar> AfterThinking(const Grammar& answer, const Thinking& thinking,
                                             const Tokenizer& tokenizer,
                                             std::shared_ptr<GrammarMemory> memory = nullptr);

// The marks that are control tokens of the model: an answer must show their texts.
std::vector<TokenId> ThinkingTokens(const Thinking& thinking, const Tokenizer& tokenizer);

}  // namespace hearth
