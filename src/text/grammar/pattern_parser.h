// Regular expressions of JSON Schema's "pattern" (ECMA-262), as trees.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace hearth {

using CodePointRange = std::pair<uint32_t, uint32_t>;  // first and last

struct PatternNode {
  enum class Kind : uint8_t { kCharacters, kSequence, kAlternatives, kRepeat };
  Kind kind = Kind::kSequence;
  std::vector<CodePointRange> ranges;  // of kCharacters: one of them, in order, apart
  std::vector<PatternNode> children;   // of kRepeat one
  int64_t min = 0, max = -1;           // of kRepeat; -1: without bound
};

struct PatternCondition;

// One of the alternatives at the top.
struct PatternBranch {
  bool at_start = false;  // "^"
  bool at_end = false;    // "$"
  std::vector<PatternNode> items;
  std::vector<PatternCondition> conditions;  // "(?=" and "(?!" after "^": they must hold too
};

// What a text must, or must not, begin with.
struct PatternCondition {
  bool is_negated = false;
  std::vector<PatternBranch> branches;  // all at the start, without conditions of their own
};

// ECMA-262 and the validators of other languages do not agree on which characters past ASCII are
// letters, digits and spaces. kNarrow: the classes hold what is in them in all; kWide: what is in
// them in any, for texts that must not match.
enum class PatternClasses { kNarrow, kWide };

// Throws Error(kUnsupported) and Error(kInvalidArgument) as StringOfPattern says.
std::vector<PatternBranch> ParsePattern(std::string_view pattern,
                                        PatternClasses classes = PatternClasses::kNarrow);

}  // namespace hearth
