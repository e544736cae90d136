#include "text/chat/mark_grammar.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/grammar/grammar_matcher.h"

namespace hearth {
namespace {

constexpr size_t kControlTokenByte = 0xFF;  // that ControlTokenBytes begins with

// How much of the beginning of `mark` a text ends with.
size_t EndsWithBeginning(const std::string& text, const std::string& mark) {
  size_t longest = std::min(text.size(), mark.size());
  while (text.compare(text.size() - longest, longest, mark, 0, longest) != 0) --longest;
  return longest;
}

}  // namespace

TokenId ControlMark(const Tokenizer& tokenizer, std::string_view mark) {
  const TokenId id = tokenizer.FindToken(mark);
  return id >= 0 && tokenizer.type(id) == TokenType::kControl ? id : -1;
}

std::string MarkBytes(const Tokenizer& tokenizer, std::string_view mark) {
  const TokenId id = ControlMark(tokenizer, mark);
  return id >= 0 ? ControlTokenBytes(id) : std::string(mark);
}

// A rule for every length of the beginning of the mark that the text so far ends with.
GrammarBuilder::Symbol TextUpTo(GrammarBuilder& builder, const std::string& mark,
                                GrammarBuilder::Symbol next) {
  const bool is_control = static_cast<uint8_t>(mark[0]) == kControlTokenByte;
  std::vector<uint32_t> rules;
  for (size_t i = 0; i < mark.size(); ++i) rules.push_back(builder.NewRule());
  for (size_t i = 0; i < mark.size(); ++i) {
    std::vector<ByteSet> sets(mark.size() + 1);  // by the length that they lead to
    for (size_t byte = 0; byte < 256; ++byte) {
      const size_t length = EndsWithBeginning(mark.substr(0, i) + static_cast<char>(byte), mark);
      const bool leaves_control = is_control && i > 0 && length != i + 1;
      if (leaves_control || (byte == kControlTokenByte && length == 0)) continue;
      sets[length].set(byte);
    }
    for (size_t length = 0; length <= mark.size(); ++length) {
      if (sets[length].none()) continue;
      const auto then = length == mark.size() ? next : GrammarBuilder::Rule(rules[length]);
      builder.AddAlternative(rules[i], {builder.Bytes(sets[length]), then});
    }
  }
  return GrammarBuilder::Rule(rules[0]);
}

GrammarBuilder::Symbol AnyText(GrammarBuilder& builder) {
  ByteSet bytes;
  bytes.set().reset(kControlTokenByte);
  return builder.Repeat({builder.Bytes(bytes)}, 0, -1);
}

}  // namespace hearth
