#include "text/tools/call_body.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer/white_space.h"

namespace hearth {
namespace {

// No name of a function or an argument is that long.
constexpr size_t kLongestName = 256;

bool EndsIn(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

const ToolParameters& ParametersIn(const CallableFunctions& functions, std::string_view name) {
  static const ToolParameters kNone;
  const auto known = functions.find(name);
  return known == functions.end() ? kNone : known->second;
}

// Values without quotes between tags.
class TaggedBody : public CallBody {
 public:
  TaggedBody(const ToolSyntax& syntax, const CallableFunctions& functions)
      : syntax_(syntax), functions_(functions) {}

  void Open() override { Enter(syntax_.name_begin.empty() ? State::kName : State::kBeforeName); }

  Step Push(char byte) override {
    switch (state_) {
      case State::kBeforeName:
        return FeedBeforeName(byte);
      case State::kName:
        return FeedName(byte);
      case State::kBetween:
        return FeedBetween(byte);
      case State::kKey:
        return FeedKey(byte);
      case State::kBeforeValue:
        text_ += byte;
        if (EndsIn(text_, syntax_.value_begin)) Enter(State::kValue);
        return Step::kGoesOn;
      case State::kValue:
        return FeedValue(byte);
    }
    return Step::kNoCall;
  }

 private:
  enum class State { kBeforeName, kName, kBetween, kKey, kBeforeValue, kValue };

  void Enter(State state) {
    state_ = state;
    text_.clear();
  }

  Step FeedBeforeName(char byte) {
    if (text_.empty() && IsJsonSpace(byte)) return Step::kGoesOn;
    text_ += byte;
    if (text_ == syntax_.name_begin) Enter(State::kName);
    const bool fits = syntax_.name_begin.substr(0, text_.size()) == text_;
    return fits ? Step::kGoesOn : Step::kNoCall;
  }

  Step FeedName(char byte) {
    // Without a mark of its own a name ends where a tag begins, or in white space.
    const bool has_mark = !syntax_.name_end.empty();
    const bool ends_here =
        !has_mark && !text_.empty() && (byte == syntax_.key_begin[0] || IsJsonSpace(byte));
    if (!ends_here) {
      if (text_.empty() && IsJsonSpace(byte)) return Step::kGoesOn;
      text_ += byte;
      if (text_.size() > kLongestName) return Step::kNoCall;
      if (!has_mark || !EndsIn(text_, syntax_.name_end)) return Step::kGoesOn;
      text_.resize(text_.size() - syntax_.name_end.size());
    }
    const std::string name(Trim(text_));
    parameters_ = &ParametersIn(functions_, name);
    Enter(State::kBetween);
    if (ends_here) text_ += byte;
    return BeginCall(name);
  }

  // What is neither an argument nor the end does not matter.
  Step FeedBetween(char byte) {
    text_ += byte;
    const auto may_be = [&](std::string_view mark) {
      return mark.substr(0, text_.size()) == text_;
    };
    while (!text_.empty() && !may_be(syntax_.key_begin) && !may_be(syntax_.close) &&
           !may_be(syntax_.end)) {
      text_.erase(0, 1);
    }
    if (text_ == syntax_.key_begin) {
      Enter(State::kKey);
    } else if (!text_.empty() && (text_ == syntax_.close || text_ == syntax_.end)) {
      EndCall();
      return text_ == syntax_.close ? Step::kBodyDone : Step::kEndDone;
    }
    return Step::kGoesOn;
  }

  Step FeedKey(char byte) {
    text_ += byte;
    if (EndsIn(text_, syntax_.key_end)) {
      key_ = Trim(std::string_view(text_).substr(0, text_.size() - syntax_.key_end.size()));
      Enter(syntax_.value_begin.empty() ? State::kValue : State::kBeforeValue);
    } else if (text_.size() > kLongestName) {
      Enter(State::kBetween);
    }
    return Step::kGoesOn;
  }

  Step FeedValue(char byte) {
    text_ += byte;
    if (!EndsIn(text_, syntax_.value_end)) return Step::kGoesOn;
    text_.resize(text_.size() - syntax_.value_end.size());
    if (syntax_.values_on_lines) {
      if (!text_.empty() && text_.back() == '\n') text_.pop_back();
      if (!text_.empty() && text_.front() == '\n') text_.erase(0, 1);
    }
    AddArgument(key_, JsonOfBareText(text_, parameters_->KindsOf(key_)));
    Enter(State::kBetween);
    return Step::kGoesOn;
  }

  const ToolSyntax& syntax_;
  const CallableFunctions& functions_;
  const ToolParameters* parameters_ = nullptr;  // of the call
  State state_ = State::kBeforeName;
  std::string text_;  // of the state, so far
  std::string key_;
};

// "[f(a=1, b='x'), g()]".
class PythonBody : public CallBody {
 public:
  explicit PythonBody(const CallableFunctions& functions) : functions_(functions) {}

  void Open() override {
    num_calls_ = 0;
    Enter(State::kOpen);
  }

  Step Push(char byte) override {
    switch (state_) {
      case State::kOpen:
        if (IsJsonSpace(byte)) return Step::kGoesOn;
        Enter(State::kNext);
        return byte == '[' ? Step::kGoesOn : Step::kNoCall;
      case State::kNext:
        return FeedNext(byte);
      case State::kName:
        return FeedName(byte);
      case State::kKey:
        return FeedKey(byte);
      case State::kValue:
        return FeedValue(byte);
    }
    return Step::kNoCall;
  }

 private:
  enum class State { kOpen, kNext, kName, kKey, kValue };

  void Enter(State state) {
    state_ = state;
    text_.clear();
    depth_ = 0;
    quote_ = '\0';
  }

  Step FeedNext(char byte) {
    if (IsJsonSpace(byte)) return Step::kGoesOn;
    if (byte == ']') return num_calls_ > 0 ? Step::kBodyDone : Step::kNoCall;
    if (byte == ',' && num_calls_ > 0) {
      Enter(State::kName);
      return Step::kGoesOn;
    }
    if (num_calls_ > 0) return Step::kNoCall;
    Enter(State::kName);
    return FeedName(byte);
  }

  Step FeedName(char byte) {
    if (byte != '(') {
      text_ += byte;
      const bool is_odd = byte == '[' || byte == ']' || byte == '"' || byte == '\'' || byte == '{';
      return is_odd || text_.size() > kLongestName ? Step::kNoCall : Step::kGoesOn;
    }
    const std::string name(Trim(text_));
    parameters_ = &ParametersIn(functions_, name);
    place_ = 0;
    Enter(State::kKey);
    return BeginCall(name);
  }

  Step FeedKey(char byte) {
    if (byte == '=') {
      key_ = Trim(text_);
      Enter(State::kValue);
      return Step::kGoesOn;
    }
    if (text_.empty() && (IsJsonSpace(byte) || byte == ',')) return Step::kGoesOn;
    if (text_.empty() && byte == ')') return Close();
    const bool is_of_name = byte == '_' || (byte >= 'a' && byte <= 'z') ||
                            (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
                            IsJsonSpace(byte);
    if (is_of_name && text_.size() < kLongestName) {
      text_ += byte;
      return Step::kGoesOn;
    }
    // A value without a name: that of the parameter in its place.
    const std::string begun = text_;
    const auto& all = parameters_->all;
    key_ = place_ < all.size() ? all[place_].name : "";
    Enter(State::kValue);
    text_ = begun;
    return FeedValue(byte);
  }

  Step FeedValue(char byte) {
    if (quote_ != '\0') {
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (byte == '\\') {
        is_escaped_ = true;
      } else if (byte == quote_) {
        quote_ = '\0';
      }
      text_ += byte;
      return Step::kGoesOn;
    }
    if (depth_ == 0 && (byte == ',' || byte == ')')) {
      if (!key_.empty()) AddArgument(key_, JsonOfPython(text_));
      ++place_;
      Enter(State::kKey);
      return byte == ')' ? Close() : Step::kGoesOn;
    }
    if (byte == '"' || byte == '\'') quote_ = byte;
    if (byte == '[' || byte == '(' || byte == '{') ++depth_;
    if ((byte == ']' || byte == ')' || byte == '}') && depth_ > 0) --depth_;
    text_ += byte;
    return Step::kGoesOn;
  }

  Step Close() {
    EndCall();
    ++num_calls_;
    Enter(State::kNext);
    return Step::kCallDone;
  }

  const CallableFunctions& functions_;
  const ToolParameters* parameters_ = nullptr;  // of the call
  State state_ = State::kOpen;
  std::string text_;  // of the state, so far
  std::string key_;
  size_t place_ = 0;  // of the argument in its call
  int num_calls_ = 0;
  int64_t depth_ = 0;
  char quote_ = '\0';  // that the value is in
  bool is_escaped_ = false;
};

}  // namespace

std::shared_ptr<const CallableFunctions> MakeCallable(const std::vector<ToolFunction>& functions,
                                                      const ToolSyntax& syntax) {
  CallableFunctions callable;
  for (const ToolFunction& function : functions) {
    callable[function.name] =
        syntax.has_body() ? ReadToolParameters(function.parameters) : ToolParameters();
  }
  return std::make_shared<const CallableFunctions>(std::move(callable));
}

std::string CallBody::TakeArguments() { return std::exchange(new_, {}); }

CallBody::Step CallBody::BeginCall(std::string name) {
  name_ = std::move(name);
  new_ = "{";
  keys_.clear();
  return Step::kName;
}

void CallBody::AddArgument(const std::string& key, const std::string& json) {
  if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) return;
  if (!keys_.empty()) new_ += ", ";
  keys_.push_back(key);
  new_ += JsonText(key) + ": " + json;
}

void CallBody::EndCall() { new_ += "}"; }

std::unique_ptr<CallBody> MakeCallBody(const ToolSyntax& syntax,
                                       const CallableFunctions& functions) {
  if (syntax.form == ToolSyntax::Form::kPython) return std::make_unique<PythonBody>(functions);
  return std::make_unique<TaggedBody>(syntax, functions);
}

}  // namespace hearth
