#include "text/chat/thinking.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/white_space.h"

namespace hearth {
namespace {

struct Marks {
  const char* begin;
  const char* end;
};
constexpr std::array<Marks, 5> kMarks = {{
    {"<think>", "</think>"},                     // DeepSeek R1, Qwen 3, QwQ and most others
    {"[THINK]", "[/THINK]"},                     // Magistral
    {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command A Reasoning
    {"<seed:think>", "</seed:think>"},           // Seed OSS
    {"<thought>", "</thought>"},                 // EXAONE Deep
}};

constexpr size_t kControlTokenByte = 0xFF;  // that ControlTokenBytes begins with
constexpr int64_t kMostSpaces = 4;          // between the block and what surrounds it

TokenId ControlMark(const Tokenizer& tokenizer, const std::string& mark) {
  const TokenId id = tokenizer.FindToken(mark);
  return id >= 0 && tokenizer.type(id) == TokenType::kControl ? id : -1;
}

std::string MarkBytes(const Tokenizer& tokenizer, const std::string& mark) {
  const TokenId id = ControlMark(tokenizer, mark);
  return id >= 0 ? ControlTokenBytes(id) : mark;
}

// How much of the beginning of `mark` a text ends with.
size_t EndsWithBeginning(const std::string& text, const std::string& mark) {
  size_t longest = std::min(text.size(), mark.size());
  while (text.compare(text.size() - longest, longest, mark, 0, longest) != 0) --longest;
  return longest;
}

// Any text up to the first `mark`, then `next`: a rule for every length of the beginning of the
// mark that the text so far ends with. Of control tokens only the mark may come.
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

}  // namespace

std::optional<Thinking> DetectThinking(std::string_view jinja_template) {
  for (const Marks& marks : kMarks) {
    if (jinja_template.find(marks.end) == std::string_view::npos) continue;
    return Thinking{.begin = marks.begin, .end = marks.end};
  }
  return std::nullopt;
}

std::optional<Thinking> ThinkingAfter(Thinking marks, const std::vector<ChatPiece>& pieces) {
  // What a user wrote opens nothing.
  if (pieces.empty() || !pieces.back().trusted) return marks;
  const std::string_view written = TrimEnd(pieces.back().text);
  const auto ends_with = [&](const std::string& mark) {
    return written.size() >= mark.size() && written.substr(written.size() - mark.size()) == mark;
  };
  if (ends_with(marks.end)) return std::nullopt;
  marks.is_open = ends_with(marks.begin);
  return marks;
}

std::shared_ptr<const Grammar> BehindThinking(const Grammar& answer, const Thinking& thinking,
                                              const Tokenizer& tokenizer,
                                              std::shared_ptr<GrammarMemory> memory) {
  GrammarBuilder builder(std::move(memory));
  const GrammarBuilder::Symbol text = builder.Add(answer);
  ByteSet space_bytes;
  for (const char space : {' ', '\t', '\n', '\r'}) space_bytes.set(static_cast<uint8_t>(space));
  const GrammarBuilder::Symbol spaces =
      builder.Repeat({builder.Bytes(space_bytes)}, 0, kMostSpaces);
  const GrammarBuilder::Symbol behind = builder.AnyOf({{spaces, text}});
  GrammarBuilder::Symbol start = TextUpTo(builder, MarkBytes(tokenizer, thinking.end), behind);
  if (!thinking.is_open) {
    GrammarBuilder::Sequence block = {spaces};
    const GrammarBuilder::Sequence begin = builder.Literal(MarkBytes(tokenizer, thinking.begin));
    block.insert(block.end(), begin.begin(), begin.end());
    block.push_back(start);
    start = builder.AnyOf({block, {text}});
  }
  return std::make_shared<const Grammar>(builder.Build(start.index));
}

std::vector<TokenId> ThinkingTokens(const Thinking& thinking, const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  for (const std::string& mark : {thinking.begin, thinking.end}) {
    if (const TokenId id = ControlMark(tokenizer, mark); id >= 0) tokens.push_back(id);
  }
  return tokens;
}

}  // namespace hearth
