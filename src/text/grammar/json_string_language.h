// Strings that keep to several patterns and bounds at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/pattern_parser.h"

namespace hearth {

// A rule for one of the characters, as they stand in JSON. No text where there are none.
Grammar::Symbol JsonCharacters(GrammarBuilder& builder, const std::vector<CodePointRange>& ranges);

// What strings must be, and must not be. Texts are compared by code points.
class StringLanguage {
 public:
  // The pattern is found somewhere in the text. Throws as ParsePattern does.
  void Require(std::string_view pattern, PatternClasses classes = PatternClasses::kNarrow);
  void Require(const std::vector<PatternBranch>& branches);
  // The pattern is found nowhere in it.
  void Forbid(std::string_view pattern);
  void ForbidTexts(const std::vector<std::string>& texts);
  // So many characters; max -1: without bound.
  void Bound(int64_t min, int64_t max);

  // A rule for these strings in JSON, with their quotes. A bound far above what is needed is taken
  // for a nearer one. Throws Error(kUnsupported) where that would be too large.
  Grammar::Symbol Compile(GrammarBuilder& builder) const;
  // Whether there is none. False where that takes too long to say.
  bool IsEmpty() const;
  bool Matches(std::string_view text) const;

 private:
  using Ranges = std::vector<CodePointRange>;
  using States = std::vector<uint32_t>;  // in order

  // Positions in a pattern, with what leads from one to the next.
  struct Automaton {
    struct State {
      Ranges ranges;  // of the character that leads to `next`; none: no character
      uint32_t next = 0;
      std::vector<uint32_t> empty;  // where no character leads
    };
    std::vector<State> states;
    uint32_t start = 0, end = 0;
    uint32_t any_end = UINT32_MAX;  // a state at which all that follows is matched
    bool is_negated = false;
  };
  // A state of all of them together: the states of each, and the length so far.
  struct Place {
    std::vector<States> parts;
    int64_t length = 0;
    bool operator<(const Place& other) const {
      return length != other.length ? length < other.length : parts < other.parts;
    }
  };

  Automaton Make(const std::vector<PatternBranch>& branches) const;
  void Add(Automaton automaton) { automata_.push_back(std::move(automaton)); }
  uint32_t Append(Automaton& automaton, uint32_t from, const PatternNode& node) const;
  static uint32_t NewState(Automaton& automaton);
  static void Close(const Automaton& automaton, States& states);
  Place Start() const;
  Place Next(const Place& place, uint32_t code_point, int64_t max) const;
  bool IsDead(const Place& place) const;
  bool MayEnd(const Place& place) const;
  std::vector<std::pair<Ranges, Place>> Followers(const Place& place, int64_t max) const;
  bool CompileWithin(GrammarBuilder& builder, int64_t max, Grammar::Symbol& symbol) const;

  std::vector<Automaton> automata_;
  int64_t min_ = 0, max_ = -1;
};

}  // namespace hearth
