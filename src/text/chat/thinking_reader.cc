#include "text/chat/thinking_reader.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer/white_space.h"

namespace hearth {

ThinkingReader::ThinkingReader(Thinking thinking)
    : marks_(std::move(thinking)), state_(marks_.is_open ? State::kThinking : State::kStart) {}

ThinkingReader::Parts ThinkingReader::Push(std::string_view text) {
  Parts parts;
  for (size_t i = 0; i < text.size(); ++i) {
    if (state_ == State::kAnswer) {
      parts.answer += text.substr(i);
      break;
    }
    Feed(text[i], parts);
  }
  return parts;
}

void ThinkingReader::Feed(char byte, Parts& parts) {
  if (state_ == State::kAfter) {
    if (IsJsonSpace(byte)) return;
    state_ = State::kAnswer;
    parts.answer += byte;
    return;
  }
  held_ += byte;
  if (state_ == State::kStart) {
    const size_t first = held_.find_first_not_of(" \t\n\r");
    if (first == std::string::npos) return;
    const std::string_view begun = std::string_view(held_).substr(first);
    if (marks_.begin.compare(0, begun.size(), begun) != 0) {
      state_ = State::kAnswer;
      parts.answer += std::exchange(held_, {});
    } else if (begun.size() == marks_.begin.size()) {
      state_ = State::kThinking;
      held_.clear();
    }
    return;
  }
  // What cannot be the beginning of the end any more is a thought.
  size_t kept = std::min(held_.size(), marks_.end.size());
  while (held_.compare(held_.size() - kept, kept, marks_.end, 0, kept) != 0) --kept;
  ShowThoughts(std::string_view(held_).substr(0, held_.size() - kept), parts);
  held_.erase(0, held_.size() - kept);
  if (held_.size() < marks_.end.size()) return;
  held_.clear();
  spaces_.clear();
  state_ = State::kAfter;
}

void ThinkingReader::ShowThoughts(std::string_view text, Parts& parts) {
  for (const char byte : text) {
    if (IsJsonSpace(byte)) {
      if (has_thoughts_) spaces_ += byte;
      continue;
    }
    has_thoughts_ = true;
    parts.thoughts += std::exchange(spaces_, {});
    parts.thoughts += byte;
  }
}

ThinkingReader::Parts ThinkingReader::Finish() {
  Parts parts;
  const std::string rest = std::exchange(held_, {});
  if (state_ == State::kThinking) {
    ShowThoughts(rest, parts);
  } else {
    parts.answer = rest;
  }
  return parts;
}

}  // namespace hearth
