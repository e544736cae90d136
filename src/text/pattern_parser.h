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

// One of the alternatives at the top.
struct PatternBranch {
  bool at_start = false;  // "^"
  bool at_end = false;    // "$"
  std::vector<PatternNode> items;
};

// Throws Error(kUnsupported) and Error(kInvalidArgument) as StringOfPattern says.
std::vector<PatternBranch> ParsePattern(std::string_view pattern);

}  // namespace hearth
