#include "text/jinja/values/search.h"

namespace hearth::jinja {

TextFinder::TextFinder(Runtime& runtime, TextView wanted, Direction direction)
    : wanted_(wanted), backward_(direction == Direction::kBackward) {
  runtime.CheckSize(static_cast<Int>(wanted.size()));
  runtime.Spend(wanted.size() / 4);
  borders_.resize(wanted.size());
  size_t border = 0;
  for (size_t i = 1; i < wanted.size(); ++i) {
    while (border > 0 && Wanted(i) != Wanted(border)) border = borders_[border - 1];
    if (Wanted(i) == Wanted(border)) ++border;
    borders_[i] = static_cast<uint32_t>(border);
  }
}

char32_t TextFinder::Wanted(size_t index) const {
  return Plain(wanted_[backward_ ? wanted_.size() - 1 - index : index]);
}

size_t TextFinder::Find(TextView text, size_t from) const {
  if (from > text.size()) return Text::npos;
  const TextView part = text.substr(from);
  if (wanted_.empty()) return backward_ ? text.size() : from;
  size_t matched = 0;
  for (size_t i = 0; i < part.size(); ++i) {
    const char32_t c = Plain(part[backward_ ? part.size() - 1 - i : i]);
    while (matched > 0 && c != Wanted(matched)) matched = borders_[matched - 1];
    if (c == Wanted(matched)) ++matched;
    if (matched == wanted_.size())
      return from + (backward_ ? part.size() - 1 - i : i + 1 - matched);
  }
  return Text::npos;
}

namespace {

size_t FindOnce(Runtime& runtime, TextView text, TextView wanted, TextFinder::Direction direction) {
  runtime.Spend(text.size() / 4);
  if (wanted.size() > text.size()) return Text::npos;
  return TextFinder(runtime, wanted, direction).Find(text);
}

}  // namespace

size_t FindText(Runtime& runtime, TextView text, TextView wanted) {
  return FindOnce(runtime, text, wanted, TextFinder::Direction::kForward);
}

size_t FindTextBackward(Runtime& runtime, TextView text, TextView wanted) {
  return FindOnce(runtime, text, wanted, TextFinder::Direction::kBackward);
}

}  // namespace hearth::jinja
