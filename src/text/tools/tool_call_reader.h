// Finds tool calls in an answer while it is written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tools/call_body.h"
#include "text/tools/tool_syntax.h"

namespace hearth {

// A piece of an answer.
struct AnswerPart {
  std::optional<int64_t> call;  // of this call, counted from 0; nothing: of the text
  std::string name;             // of the function; in a call's first part only
  std::string text;             // or arguments, JSON as the model wrote it
  bool is_thought = false;      // the text: what the model thinks
};

// Where a JSON value ends, byte by byte. Counts brackets and knows strings; what stands between is
// not its business.
class JsonValueEnd {
 public:
  enum class Place : uint8_t { kInside, kLast, kAfter };  // of the byte, in its value
  Place Push(char byte);
  bool is_container() const { return kind_ == Kind::kContainer; }
  bool is_string() const { return kind_ == Kind::kString; }

 private:
  enum class Kind : uint8_t { kNone, kString, kContainer, kScalar };
  Kind kind_ = Kind::kNone;
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool is_escaped_ = false;
};

// A call is told from its function's name on; its arguments as they come. What begins like a call
// but names none of the functions is text. White space between text and calls is dropped.
//
// How the answer is cut into pieces changes nothing of the sum. One thread.
class ToolCallReader {
 public:
  // functions: those that may be called. The syntax must outlive it.
  ToolCallReader(const ToolSyntax& syntax, std::shared_ptr<const CallableFunctions> functions);

  std::vector<AnswerPart> Push(std::string_view text);
  // The answer has ended, or was cut off: then the last call's arguments are not whole.
  std::vector<AnswerPart> Finish();

  int64_t num_calls() const { return num_calls_; }
  // The arguments of the last call are not whole yet.
  bool is_inside_call() const {
    return state_ != State::kText && state_ != State::kEnd && state_ != State::kListNext &&
           has_name_ && !is_between_calls_;
  }

 private:
  //   kText -begin-> [kListOpen] -> kObjectOpen -> kMember -> kKey -> kColon -> kValue -> kMember
  //                  kName -> kArguments -> kValue                          kMember, kValue -> kEnd
  //   kEnd -end-> kText; of a list: kListNext -> kObjectOpen or kEnd
  //   kText -begin-> kBody -> kEnd, kText: what a CallBody reads
  // From all up to the function's name also back to kText, with what was read as text.
  enum class State : uint8_t {
    kText,
    kListOpen,
    kObjectOpen,
    kMember,
    kKey,
    kColon,
    kValue,
    kName,
    kArguments,
    kListNext,
    kBody,
    kEnd,
  };

  void Feed(char byte);
  void FeedText(char byte);
  void FeedMarker(char byte);
  void FeedEnd(char byte);
  bool FeedCall(char byte);
  bool FeedMember(char byte);
  bool FeedKey(char byte);
  bool FeedName(char byte);
  bool FeedValue(char byte);
  bool EndValue();
  bool FeedBody(char byte);
  bool EndCall();
  void OpenCall();
  bool BeginCall(const std::string& name);
  void GiveUp(char byte);
  void ShowText(std::string_view text);
  void ShowArguments(std::string_view text);
  bool IsArguments() const;

  const ToolSyntax& syntax_;
  const std::shared_ptr<const CallableFunctions> functions_;
  std::unique_ptr<CallBody> body_;  // of the forms that need one
  std::vector<AnswerPart> parts_;   // to be taken
  State state_ = State::kText;
  bool at_start_ = true;     // nothing but white space so far
  bool after_call_ = false;  // nothing but white space since a call
  int64_t num_calls_ = 0;
  std::string spaces_;   // white space that may precede a call, held back
  std::string partial_;  // the beginning of `begin` or `end` after it
  std::string raw_;      // a call as it was written, until its function is known
  bool has_name_ = false;
  bool has_arguments_ = false;
  bool is_between_calls_ = false;  // of a body: one is over, the next has no name yet
  std::string key_;
  std::string value_;            // of the member `key_`, where it is not shown as it comes
  std::string early_arguments_;  // that came before the name
  JsonValueEnd value_end_;
};

}  // namespace hearth
