// Tells what a model thinks from what it answers, while it writes.
#pragma once

#include <string>
#include <string_view>

#include "hearth/hearth.hpp"

namespace hearth::serve {

// How the answer is cut into pieces changes nothing of the sum. White space at the borders of the
// thoughts, and before what follows them, is part of neither.
class ThinkingReader {
 public:
  explicit ThinkingReader(api::Thinking thinking);

  struct Parts {
    std::string thoughts;
    std::string answer;
  };
  // What the next piece of an answer adds.
  Parts Push(std::string_view text);
  // The answer has ended, perhaps in its thoughts: what was held back.
  Parts Finish();

 private:
  enum class State { kStart, kThinking, kBehind, kAnswer };

  void Feed(char byte, Parts& parts);
  void ShowThoughts(std::string_view text, Parts& parts);

  const api::Thinking marks_;
  State state_;
  std::string held_;  // that may be the beginning of a mark, with the white space before the first
  std::string spaces_;  // of thoughts, after which more may follow
  bool has_thoughts_ = false;
};

}  // namespace hearth::serve
