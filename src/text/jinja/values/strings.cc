#include "text/jinja/values/strings.h"

#include <algorithm>

#include "text/jinja/values/characters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/search.h"

namespace hearth::jinja {
namespace {

void CheckSeparator(const Text* separator) {
  if (separator != nullptr && separator->empty())
    throw Failure("split needs a separator that is not empty");
}

std::vector<Text> SplitAtSpaces(const Text& text, Int max_splits) {
  std::vector<Text> parts;
  size_t at = 0;
  for (;;) {
    while (at < text.size() && IsSpace(text[at])) ++at;
    if (at == text.size()) return parts;
    if (max_splits >= 0 && static_cast<Int>(parts.size()) == max_splits) {
      parts.push_back(text.substr(at));
      return parts;
    }
    size_t end = at;
    while (end < text.size() && !IsSpace(text[end])) ++end;
    parts.push_back(text.substr(at, end - at));
    at = end;
  }
}

std::vector<Text> SplitAtSpacesFromRight(const Text& text, Int max_splits) {
  std::vector<Text> parts;
  size_t end = text.size();
  for (;;) {
    while (end > 0 && IsSpace(text[end - 1])) --end;
    if (end == 0) break;
    size_t begin = end;
    if (max_splits >= 0 && static_cast<Int>(parts.size()) == max_splits) {
      begin = 0;
    } else {
      while (begin > 0 && !IsSpace(text[begin - 1])) --begin;
    }
    parts.push_back(text.substr(begin, end - begin));
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

Text Strip(TextView text, Side side, const Text* characters) {
  const auto goes = [&](char32_t c) {
    return characters == nullptr ? IsSpace(c) : characters->find(c) != Text::npos;
  };
  if (side != Side::kRight) {
    while (!text.empty() && goes(text.front())) text.remove_prefix(1);
  }
  if (side != Side::kLeft) {
    while (!text.empty() && goes(text.back())) text.remove_suffix(1);
  }
  return Text(text);
}

Text Replace(Runtime& runtime, const Text& text, const Text& old, const Text& fresh,
             Int max_count) {
  runtime.Spend(text.size() / 16 + 1);
  Text out;
  size_t at = 0;
  Int count = 0;
  const auto more = [&] { return max_count < 0 || count < max_count; };
  const TextFinder finder(runtime, old);
  while (more()) {
    const size_t found = finder.Find(text, at);
    if (found == Text::npos) break;
    out.append(text, at, found - at);
    runtime.CheckSize(static_cast<Int>(out.size() + fresh.size()));
    runtime.Spend(1);
    out += fresh;
    ++count;
    at = found + old.size();
    if (!old.empty()) continue;
    // Before every character, and at the end.
    if (found == text.size()) return out;
    out += text[at++];
  }
  return out.append(text, at, Text::npos);
}

std::vector<Text> Split(Runtime& runtime, const Text& text, const Text* separator, Int max_splits) {
  CheckSeparator(separator);
  runtime.Spend(text.size() / 16);
  if (separator == nullptr) return SplitAtSpaces(text, max_splits);
  const TextFinder finder(runtime, *separator);
  std::vector<Text> parts;
  size_t at = 0;
  while (max_splits < 0 || static_cast<Int>(parts.size()) < max_splits) {
    const size_t found = finder.Find(text, at);
    if (found == Text::npos) break;
    parts.push_back(text.substr(at, found - at));
    at = found + separator->size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<Text> SplitFromRight(Runtime& runtime, const Text& text, const Text* separator,
                                 Int max_splits) {
  CheckSeparator(separator);
  runtime.Spend(text.size() / 16);
  if (separator == nullptr) return SplitAtSpacesFromRight(text, max_splits);
  const TextFinder finder(runtime, *separator, TextFinder::Direction::kBackward);
  std::vector<Text> parts;
  size_t end = text.size();
  while (max_splits < 0 || static_cast<Int>(parts.size()) < max_splits) {
    const size_t found = finder.Find(TextView(text).substr(0, end));
    if (found == Text::npos) break;
    parts.push_back(text.substr(found + separator->size(), end - found - separator->size()));
    end = found;
  }
  parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !IsLineBreak(text[end])) ++end;
    size_t next = std::min(end + 1, text.size());
    if (next < text.size() && Plain(text[end]) == '\r' && Plain(text[next]) == '\n') ++next;
    lines.push_back(text.substr(at, (keep_ends ? next : end) - at));
    at = next;
  }
  return lines;
}

Text Center(const Text& text, Int width, char32_t fill) {
  const Int missing = width - static_cast<Int>(text.size());
  if (missing <= 0) return text;
  // Python puts the odd space to the left where the width is odd too.
  const Int left = missing / 2 + (missing & width & 1);
  return Text(static_cast<size_t>(left), fill) + text +
         Text(static_cast<size_t>(missing - left), fill);
}

Value TextList(Runtime& runtime, std::vector<Text> texts) {
  runtime.Spend(texts.size());
  Values items;
  items.reserve(texts.size());
  for (Text& text : texts) items.push_back(runtime.String(std::move(text)));
  return runtime.List(std::move(items));
}

}  // namespace hearth::jinja
