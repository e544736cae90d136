// Harmony, the chat format of gpt-oss. Every message has a header (its role, a channel, a
// recipient) and a content: <|start|>HEADER<|message|>CONTENT<|end|>.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace hearth {

inline constexpr std::string_view kHarmonyStart = "<|start|>";
inline constexpr std::string_view kHarmonyChannel = "<|channel|>";
inline constexpr std::string_view kHarmonyConstrain = "<|constrain|>";
inline constexpr std::string_view kHarmonyMessage = "<|message|>";
inline constexpr std::string_view kHarmonyEnd = "<|end|>";        // of a message
inline constexpr std::string_view kHarmonyCall = "<|call|>";      // of one that calls a tool
inline constexpr std::string_view kHarmonyReturn = "<|return|>";  // of the last one of an answer
inline constexpr std::array<std::string_view, 7> kHarmonyMarkers = {
    kHarmonyStart, kHarmonyChannel, kHarmonyConstrain, kHarmonyMessage,
    kHarmonyEnd,   kHarmonyCall,    kHarmonyReturn};

// Before the name of a function, in recipients and in the names of tools.
inline constexpr std::string_view kHarmonyFunctions = "functions.";

struct HarmonyMessage {
  std::string role;          // "system", "developer", "user", "assistant" or "tool"
  std::string name;          // of a tool
  std::string channel;       // "analysis", "commentary" or "final"; empty: none
  std::string recipient;     // empty: everybody
  std::string content_type;  // "<|constrain|>json", "code"; empty: a text
  std::string content;

  bool operator==(const HarmonyMessage&) const = default;
};

// Takes the messages that a HarmonyReader finds: Open, any number of Add, Close, one message after
// the other.
class HarmonySink {
 public:
  virtual ~HarmonySink() = default;
  virtual void Open(const HarmonyMessage& header) = 0;  // its content is empty
  virtual void Add(std::string_view content) = 0;
  virtual void Close() = 0;
};

// Finds messages in a text while it comes. The pieces in which it comes change nothing of the
// messages. One thread.
class HarmonyReader {
 public:
  enum class Rules {
    kStrict,   // what is no message is refused
    kLenient,  // what is no message is the content of one without a channel
  };
  // role: of the first message, where the text begins after "<|start|>ROLE"; empty: it begins with
  // a whole header. The sink must outlive it.
  HarmonyReader(std::string role, Rules rules, HarmonySink& sink);

  // Strict rules: throws Error(kInvalidArgument) for what is no message.
  void Push(std::string_view text);
  // The text has ended, perhaps inside of a message, which is closed.
  void Finish();

 private:
  enum class State { kBetween, kHeader, kContent };

  void Feed(char byte);
  void OnMarker(std::string_view marker);
  void OnText(std::string_view text);
  void OpenMessage();
  // The header is no header: its text is what a message says.
  void TakeHeaderForContent();
  void Refuse(const std::string& what) const;

  const std::string role_;
  const Rules rules_;
  HarmonySink& sink_;
  State state_;
  bool is_first_ = true;  // the header has the role already
  std::string header_;
  std::string held_;  // the beginning of a marker
};

// Keeps the messages; of one that is open what came so far.
class HarmonyMessages : public HarmonySink {
 public:
  void Open(const HarmonyMessage& header) override;
  void Add(std::string_view content) override { all_.back().content += content; }
  void Close() override { is_open_ = false; }

  const std::vector<HarmonyMessage>& all() const { return all_; }
  bool is_open() const { return is_open_; }  // the last one

 private:
  std::vector<HarmonyMessage> all_;
  bool is_open_ = false;
};

// All messages of a text. Throws as HarmonyReader does.
std::vector<HarmonyMessage> ParseHarmony(std::string_view text, const std::string& role,
                                         HarmonyReader::Rules rules);

// The markers that are control tokens of the model, except those that end an answer: an answer must
// show their texts.
std::vector<TokenId> HarmonyTokens(const Tokenizer& tokenizer);

}  // namespace hearth
