// Tells what a model thinks from what it answers, by the marks around its thoughts.
#pragma once

#include <string>
#include <string_view>

#include "text/chat/thinking.h"

namespace hearth {

// The pieces in which the text comes do not change the result. White space around the thoughts, and
// between them and the answer, belongs to neither. One thread at a time.
class ThinkingReader {
 public:
  explicit ThinkingReader(Thinking thinking);

  struct Parts {
    std::string thoughts;
    std::string answer;
  };
  // What the next piece of an answer adds.
  Parts Push(std::string_view text);
  // The answer has ended, perhaps in its thoughts: what was held back.
  Parts Finish();

 private:
  enum class State { kStart, kThinking, kAfter, kAnswer };

  void Feed(char byte, Parts& parts);
  void ShowThoughts(std::string_view text, Parts& parts);

  Thinking marks_;
  State state_;
  std::string held_;  // that may be the beginning of a mark, with the white space before the first
  std::string spaces_;  // of thoughts, after which more may follow
  bool has_thoughts_ = false;
};

}  // namespace hearth
