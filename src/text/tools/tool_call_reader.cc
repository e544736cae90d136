#include "text/tools/tool_call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/tokenizer/white_space.h"

namespace hearth {
namespace {

bool IsAllSpace(std::string_view text) {
  return std::all_of(text.begin(), text.end(), IsJsonSpace);
}

// The text of a JSON string, nothing where it is none.
std::optional<std::string> StringOf(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

// The length of the longest end of `text` that begins `marker`, the whole marker left out.
size_t OverlapWith(std::string_view text, std::string_view marker) {
  for (size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == marker.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

JsonValueEnd::Place JsonValueEnd::Push(char byte) {
  if (in_string_) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (byte == '\\') {
      is_escaped_ = true;
    } else if (byte == '"') {
      in_string_ = false;
      if (kind_ == Kind::kString) return Place::kLast;
    }
    return Place::kInside;
  }
  if (kind_ == Kind::kScalar) {
    const bool is_over = IsJsonSpace(byte) || byte == ',' || byte == '}' || byte == ']';
    return is_over ? Place::kAfter : Place::kInside;
  }
  const bool opens = byte == '{' || byte == '[';
  if (kind_ == Kind::kNone) {
    kind_ = byte == '"' ? Kind::kString : opens ? Kind::kContainer : Kind::kScalar;
  }
  if (byte == '"') in_string_ = true;
  if (opens) ++depth_;
  if (kind_ == Kind::kContainer && (byte == '}' || byte == ']') && --depth_ == 0) {
    return Place::kLast;
  }
  return Place::kInside;
}

ToolCallReader::ToolCallReader(const ToolSyntax& syntax,
                               std::shared_ptr<const CallableFunctions> functions)
    : syntax_(syntax),
      functions_(std::move(functions)),
      body_(syntax.has_body() ? MakeCallBody(syntax, *functions_) : nullptr) {}

std::vector<AnswerPart> ToolCallReader::Push(std::string_view text) {
  for (const char byte : text) Feed(byte);
  return std::exchange(parts_, {});
}

std::vector<AnswerPart> ToolCallReader::Finish() {
  // What only began after a call was to be a further one.
  const bool is_text = !after_call_ && (state_ == State::kText || !has_name_);
  if (is_text) ShowText(raw_ + spaces_ + partial_);
  return std::exchange(parts_, {});
}

void ToolCallReader::Feed(char byte) {
  if (state_ == State::kText) return FeedText(byte);
  if (state_ == State::kEnd) return FeedEnd(byte);
  if (!FeedCall(byte)) return GiveUp(byte);
  if (!has_name_) raw_ += byte;
}

void ToolCallReader::FeedText(char byte) {
  if (at_start_ && !IsJsonSpace(byte)) {
    at_start_ = false;
    const bool is_list = syntax_.form == ToolSyntax::Form::kPython;
    if (syntax_.is_bare && byte == (is_list ? '[' : '{')) {
      OpenCall();
      return Feed(byte);
    }
  }
  FeedMarker(byte);
}

void ToolCallReader::FeedMarker(char byte) {
  partial_ += byte;
  if (partial_ == syntax_.begin) return OpenCall();
  const size_t keep = OverlapWith(partial_, syntax_.begin);
  std::string shown = partial_.substr(0, partial_.size() - keep);
  partial_.erase(0, shown.size());
  if (shown.empty()) return;
  const bool ends_in_space = IsJsonSpace(shown.back());  // it can only be the newest byte
  if (ends_in_space) shown.pop_back();
  if (!shown.empty()) ShowText(std::exchange(spaces_, {}) + shown);
  if (ends_in_space) spaces_ += byte;
}

// A call may begin here; the marker stands in partial_.
void ToolCallReader::OpenCall() {
  raw_ = std::exchange(spaces_, {}) + std::exchange(partial_, {});
  has_name_ = has_arguments_ = false;
  early_arguments_.clear();
  key_.clear();
  value_.clear();
  switch (syntax_.form) {
    case ToolSyntax::Form::kObject:
      state_ = State::kObjectOpen;
      break;
    case ToolSyntax::Form::kList:
      state_ = State::kListOpen;
      break;
    case ToolSyntax::Form::kNamed:
      state_ = State::kName;
      break;
    case ToolSyntax::Form::kTagged:
    case ToolSyntax::Form::kPython:
      state_ = State::kBody;
      is_between_calls_ = false;
      body_->Open();
      break;
  }
}

// As FeedCall.
bool ToolCallReader::FeedBody(char byte) {
  using Step = CallBody::Step;
  if (std::exchange(is_between_calls_, false)) {
    has_name_ = false;
    raw_.clear();
  }
  const Step step = body_->Push(byte);
  if (step == Step::kNoCall || (step == Step::kName && !BeginCall(body_->name()))) return false;
  if (has_name_) ShowArguments(body_->TakeArguments());
  if (step == Step::kGoesOn || step == Step::kName) return true;
  after_call_ = has_name_ = true;
  is_between_calls_ = step == Step::kCallDone;
  if (step == Step::kBodyDone) state_ = State::kEnd;
  if (step == Step::kEndDone) state_ = State::kText;
  return true;
}

// False where this is no call.
bool ToolCallReader::FeedCall(char byte) {
  switch (state_) {
    case State::kListOpen:
      if (byte == '[') state_ = State::kObjectOpen;
      return byte == '[' || IsJsonSpace(byte);
    case State::kObjectOpen:
      if (byte == '{') state_ = State::kMember;
      return byte == '{' || IsJsonSpace(byte);
    case State::kMember:
      return FeedMember(byte);
    case State::kKey:
      return FeedKey(byte);
    case State::kColon:
      if (byte == ':' || IsJsonSpace(byte)) return true;
      value_.clear();
      value_end_ = {};
      state_ = State::kValue;
      return FeedValue(byte);
    case State::kValue:
      return FeedValue(byte);
    case State::kName:
      return FeedName(byte);
    case State::kArguments:
      if (IsJsonSpace(byte)) return true;
      value_end_ = {};
      state_ = State::kValue;
      return FeedValue(byte);
    case State::kListNext:
      if (IsJsonSpace(byte)) return true;
      if (byte == ']') {
        state_ = State::kEnd;
        return true;
      }
      if (byte != ',') return false;
      OpenCall();
      state_ = State::kObjectOpen;
      return true;
    case State::kBody:
      return FeedBody(byte);
    case State::kText:
    case State::kEnd:
      break;
  }
  return false;
}

bool ToolCallReader::FeedMember(char byte) {
  if (byte == ',' || IsJsonSpace(byte)) return true;
  if (byte == '}') return EndCall();
  if (byte != '"') return has_name_;  // what else there is of a known call does not matter
  key_ = "\"";
  state_ = State::kKey;
  value_end_ = {};
  value_end_.Push(byte);
  return true;
}

bool ToolCallReader::FeedKey(char byte) {
  key_ += byte;
  if (value_end_.Push(byte) != JsonValueEnd::Place::kLast) return true;
  key_ = StringOf(key_).value_or("");
  state_ = State::kColon;
  if (IsArguments() && has_arguments_) key_.clear();  // a second time
  const bool is_usual = key_ == syntax_.name_key || IsArguments() || key_ == "type" ||
                        key_ == "id" || key_ == "tool_call_id";
  return has_name_ || is_usual;
}

// Models mix the two up whatever they were taught.
bool ToolCallReader::IsArguments() const {
  return key_ == syntax_.arguments_key || key_ == "arguments" || key_ == "parameters";
}

bool ToolCallReader::FeedName(char byte) {
  value_ += byte;
  const size_t length = syntax_.name_end.size();
  if (value_.size() < length ||
      value_.compare(value_.size() - length, length, std::string(syntax_.name_end)) != 0) {
    // No function has a name that long.
    constexpr size_t kLongest = 256;
    return value_.size() < kLongest;
  }
  std::string name = value_.substr(0, value_.size() - length);
  while (!name.empty() && IsJsonSpace(name.back())) name.pop_back();
  name.erase(0, std::min(name.find_first_not_of(" \t\r\n"), name.size()));
  key_ = "arguments";
  value_.clear();
  state_ = State::kArguments;
  return BeginCall(name);
}

bool ToolCallReader::FeedValue(char byte) {
  const JsonValueEnd::Place place = value_end_.Push(byte);
  if (place != JsonValueEnd::Place::kAfter) {
    // A model may write the arguments as a string of JSON: they are shown without its escapes.
    if (IsArguments() && has_name_ && !value_end_.is_string()) {
      has_arguments_ = true;
      ShowArguments({&byte, 1});
    } else {
      value_ += byte;
    }
    if (place == JsonValueEnd::Place::kInside) return true;
  }
  if (!EndValue()) return false;
  if (syntax_.form == ToolSyntax::Form::kNamed) return EndCall();
  state_ = State::kMember;
  return place == JsonValueEnd::Place::kAfter ? FeedMember(byte) : true;
}

bool ToolCallReader::EndValue() {
  if (key_ == syntax_.name_key && !has_name_) {
    const auto name = StringOf(value_);
    return name && BeginCall(*name);
  }
  if (!IsArguments() || value_.empty()) return true;
  const std::string arguments = StringOf(value_).value_or(value_);
  if (has_name_) {
    has_arguments_ = true;
    ShowArguments(arguments);
  } else {
    early_arguments_ = arguments;
  }
  return true;
}

bool ToolCallReader::BeginCall(const std::string& name) {
  if (functions_->count(name) == 0) return false;
  has_name_ = true;
  raw_.clear();
  parts_.push_back({num_calls_++, name, std::exchange(early_arguments_, {})});
  has_arguments_ = !parts_.back().text.empty();
  return true;
}

bool ToolCallReader::EndCall() {
  if (!has_name_) return false;
  if (!has_arguments_) ShowArguments("{}");
  after_call_ = true;
  value_.clear();
  state_ = syntax_.form == ToolSyntax::Form::kList ? State::kListNext : State::kEnd;
  return true;
}

// White space and `end`; without them the text goes on.
void ToolCallReader::FeedEnd(char byte) {
  if (syntax_.end.empty() || (partial_.empty() && !IsJsonSpace(byte) && byte != syntax_.end[0])) {
    state_ = State::kText;
    return FeedMarker(byte);
  }
  if (partial_.empty() && IsJsonSpace(byte)) {
    spaces_ += byte;
    return;
  }
  partial_ += byte;
  if (partial_ == syntax_.end) {
    partial_.clear();
    spaces_.clear();
    state_ = State::kText;
  } else if (partial_ != syntax_.end.substr(0, partial_.size())) {
    state_ = State::kText;
    for (const char held : std::exchange(partial_, {})) FeedMarker(held);
  }
}

// This is no call: what was read of it is text.
void ToolCallReader::GiveUp(char byte) {
  state_ = State::kText;
  if (!has_name_) ShowText(std::exchange(raw_, {}));
  FeedMarker(byte);
}

void ToolCallReader::ShowText(std::string_view text) {
  if (text.empty()) return;
  if (!IsAllSpace(text)) after_call_ = false;
  if (parts_.empty() || parts_.back().call) parts_.emplace_back();
  parts_.back().text += text;
}

void ToolCallReader::ShowArguments(std::string_view text) {
  if (text.empty()) return;
  const int64_t call = num_calls_ - 1;
  if (parts_.empty() || parts_.back().call != call) parts_.push_back({call, {}, {}});
  parts_.back().text += text;
}

}  // namespace hearth
