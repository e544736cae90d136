#include "text/chat/harmony.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/chat/mark_grammar.h"
#include "text/tokenizer/white_space.h"

namespace hearth {
namespace {

constexpr std::string_view kTo = "to=";
// Twice what the longest header with a function's name takes. What is longer is no header.
constexpr size_t kLongestHeader = 256;

bool IsMarkerBeginning(std::string_view text) {
  return std::any_of(kHarmonyMarkers.begin(), kHarmonyMarkers.end(), [&](std::string_view marker) {
    return marker.substr(0, text.size()) == text;
  });
}

bool IsMarker(std::string_view text) {
  return std::find(kHarmonyMarkers.begin(), kHarmonyMarkers.end(), text) != kHarmonyMarkers.end();
}

bool IsRole(std::string_view word) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  return std::find(std::begin(kRoles), std::end(kRoles), word) != std::end(kRoles);
}

// The words between white space.
std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  for (const char byte : text) {
    if (IsJsonSpace(byte)) {
      in_word = false;
      continue;
    }
    if (!std::exchange(in_word, true)) words.emplace_back();
    words.back() += byte;
  }
  return words;
}

// Takes the channel out of a header: what follows its marker up to white space or another marker.
std::string TakeChannel(std::string& header) {
  const size_t at = header.find(kHarmonyChannel);
  if (at == std::string::npos) return "";
  const size_t begin = at + kHarmonyChannel.size();
  const size_t end = std::min(header.find_first_of(" \t\r\n<", begin), header.size());
  std::string channel = header.substr(begin, end - begin);
  header.replace(at, end - at, " ");
  return channel;
}

// Reads what stands before the content. Returns the words that mean nothing.
std::vector<std::string> ReadHeader(std::string header, const std::string& role,
                                    HarmonyMessage& message) {
  message.channel = TakeChannel(header);
  // Models write the marker of the type right after the recipient too.
  const size_t constrain = header.find(kHarmonyConstrain);
  if (constrain != std::string::npos) header.insert(constrain, " ");
  std::vector<std::string> words = WordsOf(header);
  message.role = role;
  if (role.empty() && !words.empty() && words.front().rfind(kTo, 0) != 0) {
    if (IsRole(words.front())) {
      message.role = words.front();
    } else {
      message.role = "tool";
      message.name = words.front();
    }
    words.erase(words.begin());
  }
  std::vector<std::string> rest;
  for (std::string& word : words) {
    if (message.recipient.empty() && word.rfind(kTo, 0) == 0) {
      message.recipient = word.substr(kTo.size());
    } else if (message.content_type.empty()) {
      message.content_type = std::move(word);
    } else {
      rest.push_back(std::move(word));
    }
  }
  return rest;
}

}  // namespace

HarmonyReader::HarmonyReader(std::string role, Rules rules, HarmonySink& sink)
    : role_(std::move(role)),
      rules_(rules),
      sink_(sink),
      state_(role_.empty() ? State::kBetween : State::kHeader),
      is_first_(!role_.empty()) {}

void HarmonyReader::Push(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    // A content goes on up to where a marker may begin.
    const size_t plain = held_.empty() ? std::min(text.find('<', i), text.size()) - i : 0;
    if (plain > 0) {
      OnText(text.substr(i, plain));
      i += plain;
    } else {
      Feed(text[i++]);
    }
  }
}

void HarmonyReader::Feed(char byte) {
  held_ += byte;
  if (IsMarkerBeginning(held_)) {
    if (IsMarker(held_)) OnMarker(std::exchange(held_, {}));
    return;
  }
  // Markers have one '<', their first byte.
  held_.pop_back();
  OnText(std::exchange(held_, {}));
  if (byte == '<') {
    held_ = byte;
  } else {
    OnText({&byte, 1});
  }
}

void HarmonyReader::OnMarker(std::string_view marker) {
  const bool ends = marker == kHarmonyEnd || marker == kHarmonyCall || marker == kHarmonyReturn;
  switch (state_) {
    case State::kBetween:
      if (marker == kHarmonyStart) {
        state_ = State::kHeader;
        return;
      }
      Refuse("expected '" + std::string(kHarmonyStart) + "', found '" + std::string(marker) + "'");
      if (ends) return;
      state_ = State::kHeader;
      return OnMarker(marker);
    case State::kHeader:
      if (marker == kHarmonyMessage) return OpenMessage();
      if (ends) {
        Refuse("a message without '" + std::string(kHarmonyMessage) + "'");
        TakeHeaderForContent();
        if (state_ == State::kContent) sink_.Close();
        state_ = State::kBetween;
      } else if (marker == kHarmonyStart) {
        Refuse("'" + std::string(kHarmonyStart) + "' inside of a header");
        header_.clear();
      } else {
        header_ += marker;
      }
      return;
    case State::kContent:
      if (!ends) return sink_.Add(marker);
      sink_.Close();
      state_ = State::kBetween;
      return;
  }
}

void HarmonyReader::OnText(std::string_view text) {
  if (text.empty()) return;
  if (state_ == State::kContent) return sink_.Add(text);
  if (state_ == State::kBetween) {
    if (Trim(text).empty() && header_.empty()) return;
    Refuse("expected '" + std::string(kHarmonyStart) + "', found '" +
           Printable(text.substr(0, kLongestHeader)) + "'");
    state_ = State::kHeader;
    is_first_ = true;
  }
  header_ += text;
  if (header_.size() > kLongestHeader) {
    Refuse("a header of more than " + std::to_string(kLongestHeader) + " bytes");
    TakeHeaderForContent();
  }
}

void HarmonyReader::OpenMessage() {
  HarmonyMessage message;
  const std::string role = std::exchange(is_first_, false) ? role_ : "";
  const std::vector<std::string> rest = ReadHeader(std::exchange(header_, {}), role, message);
  if (!rest.empty()) Refuse("'" + Printable(rest.front()) + "' in a header");
  if (message.role.empty()) {
    Refuse("a header without a role");
    message.role = "assistant";
  }
  state_ = State::kContent;
  sink_.Open(message);
}

void HarmonyReader::TakeHeaderForContent() {
  is_first_ = false;
  const std::string words = std::exchange(header_, {});
  if (Trim(words).empty()) return;
  HarmonyMessage message;
  message.role = role_.empty() ? "assistant" : role_;
  state_ = State::kContent;
  sink_.Open(message);
  sink_.Add(words);
}

void HarmonyReader::Finish() {
  const std::string rest = std::exchange(held_, {});
  if (state_ == State::kContent) {
    if (!rest.empty()) sink_.Add(rest);
    sink_.Close();
  } else if (state_ == State::kHeader && header_.find(kHarmonyChannel) == std::string::npos) {
    // A header that is cut off says nothing; words without one are an answer.
    const bool is_answer = is_first_ && !Trim(header_ + rest).empty();
    if (is_answer) Refuse("a message without '" + std::string(kHarmonyMessage) + "'");
    header_ += rest;
    if (is_answer) TakeHeaderForContent();
    if (state_ == State::kContent) sink_.Close();
  }
  header_.clear();
  state_ = State::kBetween;
}

void HarmonyReader::Refuse(const std::string& what) const {
  if (rules_ == Rules::kStrict) throw Error(ErrorCode::kInvalidArgument, "Harmony message", what);
}

void HarmonyMessages::Open(const HarmonyMessage& header) {
  all_.push_back(header);
  is_open_ = true;
}

std::vector<HarmonyMessage> ParseHarmony(std::string_view text, const std::string& role,
                                         HarmonyReader::Rules rules) {
  HarmonyMessages messages;
  HarmonyReader reader(role, rules, messages);
  reader.Push(text);
  reader.Finish();
  return messages.all();
}

std::vector<TokenId> HarmonyTokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  for (const std::string_view marker : kHarmonyMarkers) {
    const TokenId id = ControlMark(tokenizer, marker);
    if (id >= 0 && !tokenizer.IsEndOfGeneration(id)) tokens.push_back(id);
  }
  return tokens;
}

}  // namespace hearth
