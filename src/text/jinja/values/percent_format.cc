// format % values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/formatting.h"
#include "text/jinja/values/markup.h"
#include "text/jinja/values/number_format.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"

namespace hearth::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& values, bool escapes)
      : runtime_(runtime), format_(format), values_(values), escapes_(escapes) {}

  Value Run() {
    while (at_ < format_.size()) {
      if (Plain(format_[at_]) == '%') {
        ++at_;
        Field();
      } else {
        out_ += format_[at_++];
      }
    }
    const bool all_used = values_.Is(Kind::kTuple)
                              ? next_ == values_.items().size()
                              : next_ > 0 || values_.Is(Kind::kDict) || values_.Is(Kind::kList) ||
                                    values_.Is(Kind::kUndefined);
    if (!all_used && !by_name_) throw Failure("a format string does not use all of its values");
    return runtime_.String(std::move(out_));
  }

 private:
  char32_t Peek() const {
    if (at_ >= format_.size()) throw Failure("a format string ends inside of a field");
    return Plain(format_[at_]);
  }

  Value Next() {
    if (values_.Is(Kind::kTuple)) {
      if (next_ >= values_.items().size()) throw Failure("a format string has too few values");
      return values_.items()[next_++];
    }
    if (next_++ > 0) throw Failure("a format string has too few values");
    return values_;
  }

  // A number written out, or "*" for one of the values.
  Int Size() {
    if (Peek() == '*') {
      ++at_;
      const Value size = Next();
      if (!IsInteger(size.kind())) throw Failure("the '*' of a format string needs an integer");
      return std::clamp<Int>(size.integer(), -(Int{1} << 40), Int{1} << 40);
    }
    Int size = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      size = std::min<Int>(size * 10 + (Peek() - '0'), Int{1} << 40);
    }
    return size;
  }

  std::optional<Value> Named() {
    if (Peek() != '(') return std::nullopt;
    const size_t end = format_.find(')', at_);
    if (end == Text::npos) throw Failure("a format string ends inside of a field");
    if (!values_.Is(Kind::kDict)) throw Failure("a format string with names needs a dict");
    const Value* found = values_.dict().FindText(format_.substr(at_ + 1, end - at_ - 1));
    if (found == nullptr) throw Failure("a format string names a value that is not there");
    at_ = end + 1;
    by_name_ = true;
    return *found;
  }

  void Field() {
    if (Peek() == '%') {
      out_ += format_[at_++];
      return;
    }
    const auto named = Named();
    FormatSpec spec;
    spec.align = '>';
    bool zero = false;
    for (;; ++at_) {
      const char32_t flag = Peek();
      if (flag == '-') {
        spec.align = '<';
      } else if (flag == '0') {
        zero = true;
      } else if (flag == '+' || (flag == ' ' && spec.sign != '+')) {
        spec.sign = static_cast<char>(flag);
      } else if (flag == '#') {
        spec.alternate = true;
      } else if (flag != ' ') {
        break;
      }
    }
    spec.width = Size();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (Peek() == '.') {
      ++at_;
      spec.precision = std::max<Int>(Size(), 0);
    }
    while (Peek() == 'l' || Peek() == 'h' || Peek() == 'L') ++at_;
    runtime_.CheckSize(spec.width);
    const char type = static_cast<char>(Peek() < 0x80 ? Peek() : '?');
    ++at_;
    if (zero && spec.align == '>') {
      spec.align = '=';
      spec.fill = Trusted('0');
    }
    Write(named ? *named : Next(), spec, type);
  }

  void Write(const Value& value, FormatSpec spec, char type) {
    if (std::string_view("sra").find(type) != std::string_view::npos) {
      return WriteText(value, spec, type);
    }
    if (type == 'c') return WriteCharacter(value, spec);
    const bool is_integer = std::string_view("diuxXo").find(type) != std::string_view::npos;
    if (!is_integer && std::string_view("eEfFgG").find(type) == std::string_view::npos) {
      throw Failure("a format string has an unknown field type");
    }
    if (value.Is(Kind::kUndefined)) FailUndefined(value);
    Value number = value;
    const bool truncates = type == 'd' || type == 'i' || type == 'u';
    if (is_integer && truncates && value.Is(Kind::kFloat)) {
      if (!(std::fabs(value.real()) < 1e38))
        throw Failure("a float is too large for a format string");
      number = Value::Integer(static_cast<Int>(value.real()));
    }
    if (is_integer ? !IsInteger(number.kind()) : !IsNumber(number.kind())) {
      throw Failure(fmt::format("%{} needs a number, not a {}", type, TypeName(value)));
    }
    NumberText digits = Digits(number, spec, truncates ? 'd' : type);
    if (is_integer && spec.precision) {
      runtime_.CheckSize(*spec.precision);
      const Int missing = *spec.precision - static_cast<Int>(digits.whole.size());
      if (missing > 0) digits.whole.insert(0, static_cast<size_t>(missing), '0');
    }
    out_ += NumberField(digits, IsNegative(number), spec);
  }

  void WriteText(const Value& value, FormatSpec spec, char type) {
    Text text = type == 's' ? Str(runtime_, value) : Repr(runtime_, value);
    if (type == 'a') text = AsciiOnly(text);
    if (escapes_ && !(type == 's' && IsMarkup(value))) text = EscapeHtml(text);
    if (spec.precision && *spec.precision < static_cast<Int>(text.size())) {
      text.resize(static_cast<size_t>(*spec.precision));
    }
    if (spec.align == '=') {
      spec.align = '>';
      spec.fill = Trusted(' ');
    }
    out_ += TextField(std::move(text), spec);
  }

  void WriteCharacter(const Value& value, FormatSpec spec) {
    Text text;
    if (value.Is(Kind::kString) && value.text().size() == 1) {
      text = value.text();
    } else if (IsInteger(value.kind()) && IsCodePoint(value.integer())) {
      // Not trusted: the number may come from outside.
      text = Text(1, static_cast<char32_t>(value.integer()));
    } else {
      throw Failure("%c needs a character");
    }
    spec.fill = Trusted(' ');
    if (spec.align == '=') spec.align = '>';
    out_ += TextField(std::move(text), spec);
  }

  Runtime& runtime_;
  const Text& format_;
  const Value& values_;
  const bool escapes_;
  size_t at_ = 0;
  size_t next_ = 0;
  bool by_name_ = false;
  Text out_;
};

}  // namespace

Value FormatPercent(Runtime& runtime, const Text& format, const Value& values, bool escapes) {
  return PercentFormatter(runtime, format, values, escapes).Run();
}

}  // namespace hearth::jinja
