#include "text/tokenizer/markers.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "text/tokenizer/utf8.h"

namespace hearth {
namespace {

// How chat models spell the end of a turn; the first that a vocabulary has becomes its `eot` where
// the file names none.
constexpr std::string_view kTurnEnds[] = {
    "<|return|>",
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|eot|>",
    "<|end_of_turn|>",
    "<|endofturn|>",
    "[|endofturn|]",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_utterance>",
    "<turn|>",
    "<EOT>",
    "_<EOT>",
    "\u2581<EOT>",
    "<|eom_id|>",
    "<|call|>",  // of a turn that calls a tool
};
// The end of a text or document, and what follows where a file is to be filled in.
constexpr std::string_view kTextEnds[] = {
    "</s>",
    "<eos>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|eos|>",
    "<|EOS|>",
    "[EOS]",
    "<|eod|>",
    "<eod>",
    "<EOD>",
    "<|endofdocument|>",
    "<|end_of_document|>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "<|fim_pad|>",
    "<fim_pad>",
    "<fim-pad>",
    "<|fim_repo|>",
    "<fim_repo>",
    "<|repo_name|>",
    "<repo_name>",
    "<reponame>",
    "<|file_sep|>",
    "<file_sep>",
    "<|file_separator|>",
};
// Harmony ends messages, not answers, with "<|end|>".
constexpr std::string_view kHarmonyReturn = "<|return|>";
constexpr std::string_view kHarmonyMessageEnd = "<|end|>";

bool EndsAnswers(std::string_view text) {
  constexpr std::string_view kFirstBytes = "<[_\xE2";
  if (text.empty() || kFirstBytes.find(text.front()) == std::string_view::npos) return false;
  return std::find(std::begin(kTurnEnds), std::end(kTurnEnds), text) != std::end(kTurnEnds) ||
         std::find(std::begin(kTextEnds), std::end(kTextEnds), text) != std::end(kTextEnds);
}

bool IsControlOrUserDefined(const Vocabulary& vocabulary, size_t id) {
  return vocabulary.types[id] == TokenType::kControl ||
         vocabulary.types[id] == TokenType::kUserDefined;
}

// "<...>" or "[...]": no piece that training finds.
bool LooksLikeMarker(std::string_view text) {
  constexpr size_t kShortest = 4;
  return text.size() >= kShortest && ((text.front() == '<' && text.back() == '>') ||
                                      (text.front() == '[' && text.back() == ']'));
}

// Letters, marks, digits and white space only, or no more than one character.
bool IsPlainText(std::string_view text) {
  constexpr uint32_t kSpaceMark = 0x2581;
  size_t characters = 0;
  bool all_plain = true;
  while (!text.empty()) {
    const Utf8Char next = ScanUtf8(text);
    const utf8proc_category_t category =
        utf8proc_category(static_cast<utf8proc_int32_t>(next.code_point));
    const bool is_word = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO;
    const bool is_space = category == UTF8PROC_CATEGORY_ZS ||
                          (next.code_point >= '\t' && next.code_point <= '\r') ||
                          next.code_point == kSpaceMark;
    all_plain = all_plain && next.status == Utf8Status::kComplete && (is_word || is_space);
    ++characters;
    text.remove_prefix(next.length);
  }
  return all_plain || characters <= 1;
}

}  // namespace

void TypeEndMarkers(Vocabulary* vocabulary) {
  for (size_t id = 0; id < vocabulary->texts.size(); ++id) {
    const std::string& text = vocabulary->texts[id];
    // "</s>" is HTML too.
    if (vocabulary->types[id] == TokenType::kNormal && text != "</s>" && EndsAnswers(text)) {
      vocabulary->types[id] = TokenType::kControl;
    }
  }
}

TokenId FindMarker(const Vocabulary& vocabulary, std::string_view text) {
  for (size_t id = 0; id < vocabulary.texts.size(); ++id) {
    if (IsControlOrUserDefined(vocabulary, id) && vocabulary.texts[id] == text) {
      return static_cast<TokenId>(id);
    }
  }
  return -1;
}

std::vector<TokenId> FindEndMarkers(const Vocabulary& vocabulary) {
  const bool is_harmony = FindMarker(vocabulary, kHarmonyReturn) >= 0;
  std::vector<TokenId> ends;
  for (size_t id = 0; id < vocabulary.texts.size(); ++id) {
    const std::string& text = vocabulary.texts[id];
    if (!IsControlOrUserDefined(vocabulary, id) || !EndsAnswers(text)) continue;
    if (is_harmony && text == kHarmonyMessageEnd) continue;
    ends.push_back(static_cast<TokenId>(id));
  }
  return ends;
}

TokenId FindTurnEnd(const Vocabulary& vocabulary) {
  const std::vector<TokenId> ends = FindEndMarkers(vocabulary);
  for (const std::string_view text : kTurnEnds) {
    const auto found = std::find_if(ends.begin(), ends.end(), [&](TokenId id) {
      return vocabulary.texts[static_cast<size_t>(id)] == text;
    });
    if (found != ends.end()) return *found;
  }
  return -1;
}

size_t FirstAddedToken(const Vocabulary& vocabulary) {
  size_t first = vocabulary.texts.size();
  while (first > 0) {
    const size_t id = first - 1;
    const bool is_piece =
        vocabulary.types[id] == TokenType::kByte ||
        (vocabulary.types[id] == TokenType::kNormal && !LooksLikeMarker(vocabulary.texts[id]));
    if (is_piece) break;
    first = id;
  }
  return first;
}

std::vector<bool> FindUserDefinedMarkers(const Vocabulary& vocabulary,
                                         std::string_view chat_template) {
  const size_t added = vocabulary.kind == "llama" ? FirstAddedToken(vocabulary) : 0;
  std::vector<bool> is_marker(vocabulary.texts.size(), false);
  for (size_t id = 0; id < vocabulary.texts.size(); ++id) {
    if (vocabulary.types[id] != TokenType::kUserDefined) continue;
    const std::string& text = vocabulary.texts[id];
    const auto token = static_cast<TokenId>(id);
    if (token == vocabulary.special.bos ||
        std::binary_search(vocabulary.end_tokens.begin(), vocabulary.end_tokens.end(), token)) {
      is_marker[id] = true;
    } else if (!IsPlainText(text)) {
      is_marker[id] = id >= added || chat_template.find(text) != std::string_view::npos;
    }
  }
  return is_marker;
}

}  // namespace hearth
