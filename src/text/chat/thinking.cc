#include "text/chat/thinking.h"

#include <array>
#include <cstdint>
#include <utility>

#include "text/chat/harmony.h"
#include "text/chat/mark_grammar.h"
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

constexpr int64_t kMostSpaces = 4;  // between the block and what surrounds it

}  // namespace

std::optional<Thinking> DetectThinking(std::string_view jinja_template) {
  const auto holds = [&](std::string_view part) {
    return jinja_template.find(part) != std::string_view::npos;
  };
  if (holds(kHarmonyStart) && holds(kHarmonyChannel) && holds(kHarmonyMessage)) {
    return HarmonyChannels();
  }
  for (const Marks& marks : kMarks) {
    if (jinja_template.find(marks.end) == std::string_view::npos) continue;
    return Thinking{.begin = marks.begin, .end = marks.end};
  }
  return std::nullopt;
}

Thinking HarmonyChannels() {
  return {.begin = std::string(kHarmonyChannel) + "analysis" + std::string(kHarmonyMessage),
          .end = std::string(kHarmonyEnd),
          .has_channels = true};
}

std::optional<Thinking> ThinkingAfter(Thinking marks, const std::vector<ChatPiece>& pieces) {
  if (marks.has_channels) return marks;
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

std::shared_ptr<const Grammar> AfterThinking(const Grammar& answer, const Thinking& thinking,
                                             const Tokenizer& tokenizer,
                                             std::shared_ptr<GrammarMemory> memory) {
  GrammarBuilder builder(std::move(memory));
  const GrammarBuilder::Symbol text = builder.Add(answer);
  ByteSet space_bytes;
  for (const char space : {' ', '\t', '\n', '\r'}) space_bytes.set(static_cast<uint8_t>(space));
  const GrammarBuilder::Symbol spaces =
      builder.Repeat({builder.Bytes(space_bytes)}, 0, kMostSpaces);
  const GrammarBuilder::Symbol after = builder.AnyOf({{spaces, text}});
  GrammarBuilder::Symbol start = TextUpTo(builder, MarkBytes(tokenizer, thinking.end), after);
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
