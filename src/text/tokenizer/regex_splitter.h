// Cuts text into pieces by regular expressions, one after another.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

// Immutable and thread-safe.
//
// Each pattern cuts the pieces that the one before left; what lies between matches is a piece
// too, so that the pieces joined are the text. Patterns are PCRE2's, with Unicode classes.
//
// Matching never fails. A pattern that runs out of the machine stack is tried with a larger one,
// then interpreted with a bounded heap; where that too gives up (nested repeats over millions of
// characters), the rest of the piece stays whole and goes to the next pattern.
class RegexSplitter {
 public:
  // Throws Error(kInternal) for a pattern that does not compile.
  explicit RegexSplitter(const std::vector<std::string>& patterns);
  ~RegexSplitter();

  RegexSplitter(const RegexSplitter&) = delete;
  RegexSplitter& operator=(const RegexSplitter&) = delete;

  using Emit = std::function<void(std::string_view)>;

  // `text` must be valid UTF-8. Calls `emit` with each piece, none of them empty, in order.
  void Split(std::string_view text, const Emit& emit) const;

 private:
  class Pattern;
  class Run;

  std::vector<std::unique_ptr<Pattern>> patterns_;
};

}  // namespace hearth
