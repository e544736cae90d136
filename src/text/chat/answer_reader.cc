#include "text/chat/answer_reader.h"

#include <utility>

#include "text/chat/harmony.h"
#include "text/chat/thinking_reader.h"
#include "text/tokenizer/white_space.h"
#include "text/tools/tool_call_grammar.h"

namespace hearth {

class AnswerReader::Reading {
 public:
  virtual ~Reading() = default;
  virtual std::vector<AnswerPart> Push(std::string_view text) = 0;
  virtual std::vector<AnswerPart> Finish() = 0;
  virtual bool ends_in_calls() const = 0;
};

namespace {

// What is thought stands in front, between marks; calls stand in the text, in one of the syntaxes.
class MarkedReading : public AnswerReader::Reading {
 public:
  explicit MarkedReading(const AnswerForm& form) {
    if (form.thinking) thinking_.emplace(*form.thinking);
    if (form.syntax != nullptr) calls_.emplace(*form.syntax, form.functions);
  }

  std::vector<AnswerPart> Push(std::string_view text) override {
    std::vector<AnswerPart> parts;
    if (thinking_) {
      AddBoth(thinking_->Push(text), parts);
    } else {
      AddText(text, parts);
    }
    return parts;
  }

  std::vector<AnswerPart> Finish() override {
    std::vector<AnswerPart> parts;
    if (thinking_) AddBoth(thinking_->Finish(), parts);
    if (calls_) Append(calls_->Finish(), parts);
    return parts;
  }

  bool ends_in_calls() const override {
    return calls_ && calls_->num_calls() > 0 && !calls_->is_inside_call();
  }

 private:
  static void Append(std::vector<AnswerPart> more, std::vector<AnswerPart>& parts) {
    for (AnswerPart& part : more) parts.push_back(std::move(part));
  }

  void AddText(std::string_view text, std::vector<AnswerPart>& parts) {
    if (calls_) return Append(calls_->Push(text), parts);
    if (!text.empty()) parts.push_back({.text = std::string(text)});
  }

  void AddBoth(const ThinkingReader::Parts& both, std::vector<AnswerPart>& parts) {
    if (!both.thoughts.empty()) parts.push_back({.text = both.thoughts, .is_thought = true});
    AddText(both.answer, parts);
  }

  std::optional<ThinkingReader> thinking_;
  std::optional<ToolCallReader> calls_;
};

// Messages of Harmony: the channel says what each is.
class ChannelReading : public AnswerReader::Reading, private HarmonySink {
 public:
  explicit ChannelReading(const AnswerForm& form)
      : functions_(form.functions), reader_("assistant", HarmonyReader::Rules::kLenient, *this) {}

  std::vector<AnswerPart> Push(std::string_view text) override {
    reader_.Push(text);
    return std::exchange(parts_, {});
  }

  std::vector<AnswerPart> Finish() override {
    reader_.Finish();
    return std::exchange(parts_, {});
  }

  bool ends_in_calls() const override { return num_calls_ > 0 && is_whole_; }

 private:
  // The function that a message calls; null where it calls none that there is.
  const std::string* FunctionOf(const HarmonyMessage& header) const {
    std::string_view name = header.recipient;
    if (name.substr(0, kHarmonyFunctions.size()) == kHarmonyFunctions) {
      name.remove_prefix(kHarmonyFunctions.size());
    }
    if (name.empty() || functions_ == nullptr) return nullptr;
    const auto found = functions_->find(name);
    return found == functions_->end() ? nullptr : &found->first;
  }

  void Open(const HarmonyMessage& header) override {
    is_call_ = false;
    is_thought_ = header.channel == "analysis";
    is_new_ = true;
    if (const std::string* name = FunctionOf(header)) {
      is_call_ = true;
      is_whole_ = false;
      arguments_end_ = {};
      parts_.push_back({.call = num_calls_++, .name = *name});
    }
  }

  void Add(std::string_view content) override {
    if (is_call_) return AddArguments(content);
    bool& had_some = is_thought_ ? has_thoughts_ : has_text_;
    // Messages of a kind that follow each other are paragraphs of one text.
    std::string text = std::exchange(is_new_, false) && had_some ? "\n\n" : "";
    had_some = true;
    text += content;
    if (!parts_.empty() && !parts_.back().call && parts_.back().is_thought == is_thought_) {
      parts_.back().text += text;
    } else {
      parts_.push_back({.text = std::move(text), .is_thought = is_thought_});
    }
  }

  // White space around the arguments is no part of them.
  void AddArguments(std::string_view content) {
    std::string text;
    for (const char byte : content) {
      const bool is_outside = is_new_ || is_whole_;
      if (is_outside && IsJsonSpace(byte)) continue;
      is_new_ = false;
      text += byte;
      if (arguments_end_.Push(byte) == JsonValueEnd::Place::kLast) is_whole_ = true;
    }
    if (text.empty()) return;
    const int64_t call = num_calls_ - 1;
    if (parts_.empty() || parts_.back().call != call) parts_.push_back({.call = call});
    parts_.back().text += text;
  }

  void Close() override {
    if (!is_call_ || !is_new_) return;
    is_whole_ = true;
    is_new_ = false;
    parts_.push_back({.call = num_calls_ - 1, .text = "{}"});
  }

  const std::shared_ptr<const CallableFunctions> functions_;
  HarmonyReader reader_;
  std::vector<AnswerPart> parts_;  // to be taken
  int64_t num_calls_ = 0;
  bool has_text_ = false;
  bool has_thoughts_ = false;
  // Of the message that is open.
  bool is_call_ = false;
  bool is_thought_ = false;
  bool is_new_ = false;    // it says nothing yet
  bool is_whole_ = false;  // the call's arguments
  JsonValueEnd arguments_end_;
};

}  // namespace

AnswerReader::AnswerReader(const AnswerForm& form) {
  if (form.thinking && form.thinking->has_channels) {
    reading_ = std::make_unique<ChannelReading>(form);
  } else {
    reading_ = std::make_unique<MarkedReading>(form);
  }
}
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;
AnswerReader& AnswerReader::operator=(AnswerReader&&) noexcept = default;
AnswerReader::~AnswerReader() = default;

std::vector<AnswerPart> AnswerReader::Push(std::string_view text) { return reading_->Push(text); }
std::vector<AnswerPart> AnswerReader::Finish() { return reading_->Finish(); }
bool AnswerReader::ends_in_calls() const { return reading_->ends_in_calls(); }

std::vector<TokenId> VisibleTokens(const AnswerForm& form, const Tokenizer& tokenizer) {
  if (form.thinking && form.thinking->has_channels) return HarmonyTokens(tokenizer);
  std::vector<TokenId> tokens;
  if (form.syntax != nullptr) tokens = ToolMarkerTokens(*form.syntax, tokenizer);
  if (form.thinking) {
    const std::vector<TokenId> marks = ThinkingTokens(*form.thinking, tokenizer);
    tokens.insert(tokens.end(), marks.begin(), marks.end());
  }
  return tokens;
}

}  // namespace hearth
