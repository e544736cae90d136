#include "text/grammar/pattern_parser.h"

#include <algorithm>
#include <optional>
#include <string>

#include "text/grammar/json_schema_parts.h"
#include "text/tokenizer/utf8.h"

namespace hearth {
namespace {

using Ranges = std::vector<CodePointRange>;
using Kind = PatternNode::Kind;

constexpr int kDeepestGroup = 40;
constexpr int64_t kMostRepeats = 1000;
constexpr size_t kLongestPattern = 10'000;
constexpr uint32_t kLastCodePoint = 0x10FFFF;

const Ranges kDigitRanges = {{'0', '9'}};
const Ranges kWordRanges = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kPastAscii = {{0x80, kLastCodePoint}};
// Spaces of ECMA-262 and of Python; those that only one of them has.
const Ranges kSpaceRanges = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},
                             {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                             {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
const Ranges kDoubtfulSpaces = {{0x1C, 0x1F}, {0x85, 0x85}, {0x180E, 0x180E}, {0xFEFF, 0xFEFF}};
const Ranges kLineEndRanges = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

[[noreturn]] void UnsupportedPattern(const std::string& what) {
  UnsupportedSchema("'pattern' with " + what);
}
[[noreturn]] void InvalidPattern(const std::string& what) {
  InvalidSchema("'pattern' is no regular expression: " + what);
}

Ranges InOrder(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges joined;
  for (const auto& [first, last] : ranges) {
    if (!joined.empty() && first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, last);
    } else {
      joined.emplace_back(first, last);
    }
  }
  return joined;
}

// All from `next` on but these.
Ranges AllBut(const Ranges& ranges, uint32_t next) {
  Ranges rest;
  for (const auto& [first, last] : InOrder(ranges)) {
    if (first > next) rest.emplace_back(next, first - 1);
    next = std::max(next, last + 1);
  }
  if (next <= kLastCodePoint) rest.emplace_back(next, kLastCodePoint);
  return rest;
}

Ranges Together(const Ranges& a, const Ranges& b) {
  Ranges both = a;
  both.insert(both.end(), b.begin(), b.end());
  return InOrder(both);
}

bool MayBeEmpty(const PatternNode& node) {
  switch (node.kind) {
    case Kind::kCharacters:
      return false;
    case Kind::kRepeat:
      return node.min == 0 || MayBeEmpty(node.children[0]);
    case Kind::kSequence:
      return std::all_of(node.children.begin(), node.children.end(), MayBeEmpty);
    case Kind::kAlternatives:
      break;
  }
  return std::any_of(node.children.begin(), node.children.end(), MayBeEmpty);
}

class PatternParser {
 public:
  PatternParser(std::string_view pattern, PatternClasses classes)
      : is_wide_(classes == PatternClasses::kWide) {
    if (pattern.size() > kLongestPattern) UnsupportedPattern("more than 10000 bytes");
    while (!pattern.empty()) {
      const Utf8Char next = ScanUtf8(pattern);
      if (next.status != Utf8Status::kComplete) InvalidPattern("it is not UTF-8");
      text_.push_back(next.code_point);
      pattern.remove_prefix(next.length);
    }
  }

  std::vector<PatternBranch> Run() {
    std::vector<PatternBranch> branches;
    do {
      PatternBranch& branch = branches.emplace_back();
      branch.at_start = Skip('^');
      while (branch.at_start && LooksAhead()) branch.conditions.push_back(Condition());
      branch.items = Items(0);
      branch.at_end = Skip('$');
      if (!AtEnd() && Peek() != '|') {
        if (Peek() == ')') InvalidPattern("a ')' without its '('");
        UnsupportedPattern("'^' or '$' inside");
      }
    } while (Skip('|'));
    return branches;
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }
  uint32_t Peek() const { return text_[at_]; }
  bool Skip(char c) {
    if (AtEnd() || Peek() != static_cast<uint32_t>(c)) return false;
    ++at_;
    return true;
  }
  uint32_t Take() {
    if (AtEnd()) InvalidPattern("it ends too soon");
    return text_[at_++];
  }

  bool LooksAhead() const {
    return at_ + 2 < text_.size() && text_[at_] == '(' && text_[at_ + 1] == '?' &&
           (text_[at_ + 2] == '=' || text_[at_ + 2] == '!');
  }

  PatternCondition Condition() {
    at_ += 2;
    PatternCondition condition;
    condition.is_negated = Take() == '!';
    const bool was_wide = is_wide_;
    if (condition.is_negated) is_wide_ = !is_wide_;
    do {
      PatternBranch& branch = condition.branches.emplace_back();
      branch.at_start = true;
      branch.items = Items(0);
      branch.at_end = Skip('$');
      if (AtEnd()) InvalidPattern("a '(' without its ')'");
      if (Peek() != '|' && Peek() != ')') UnsupportedPattern("'^' or '$' inside");
    } while (Skip('|'));
    Take();  // ")"
    is_wide_ = was_wide;
    if (!AtEnd() && (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{')) {
      UnsupportedPattern("a repeated condition");
    }
    return condition;
  }

  std::vector<PatternNode> Items(int depth) {
    std::vector<PatternNode> items;
    while (!AtEnd() && Peek() != '|' && Peek() != ')' && Peek() != '^' && Peek() != '$') {
      items.push_back(Quantified(Atom(depth)));
    }
    return items;
  }

  static PatternNode OfRanges(Ranges ranges) {
    PatternNode node;
    node.kind = Kind::kCharacters;
    node.ranges = InOrder(std::move(ranges));
    return node;
  }

  PatternNode Atom(int depth) {
    const uint32_t c = Take();
    switch (c) {
      case '.':
        return OfRanges(AllButThese(is_wide_ ? Ranges{{'\n', '\n'}} : kLineEndRanges));
      case '(':
        return Group(depth + 1);
      case '[':
        return OfRanges(Class());
      case '\\':
        return OfRanges(Escape(false));
      case '*':
      case '+':
      case '?':
        InvalidPattern("nothing to repeat");
      case '{':
      case '}':
      case ']':
        UnsupportedPattern("a bracket of its own: write it with a backslash");
      default:
        return OfRanges({{c, c}});
    }
  }

  PatternNode Group(int depth) {
    if (depth > kDeepestGroup) UnsupportedPattern("groups nested too deeply");
    if (Skip('?')) {
      const uint32_t kind = Take();
      const bool looks_back = kind == '<' && !AtEnd() && (Peek() == '=' || Peek() == '!');
      if (kind == '<' && !looks_back) {
        while (Take() != '>') {
        }
      } else if (kind != ':') {
        UnsupportedPattern("conditions on what surrounds a match, '(?'");
      }
    }
    PatternNode alternatives;
    alternatives.kind = Kind::kAlternatives;
    do {
      PatternNode& branch = alternatives.children.emplace_back();
      branch.children = Items(depth);
      if (AtEnd()) InvalidPattern("a '(' without its ')'");
      if (Peek() == '^' || Peek() == '$') UnsupportedPattern("'^' or '$' inside");
    } while (Skip('|'));
    Take();  // ")", nothing else ends the items
    return alternatives;
  }

  PatternNode Quantified(PatternNode item) {
    if (AtEnd()) return item;
    int64_t min = 0, max = -1;
    if (Skip('+')) {
      min = 1;
    } else if (Skip('?')) {
      max = 1;
    } else if (Skip('{')) {
      min = Number();
      max = Skip(',') ? (!AtEnd() && Peek() == '}' ? -1 : Number()) : min;
      if (!Skip('}')) InvalidPattern("a '{' without its '}'");
      if (max >= 0 && max < min)
        InvalidPattern("a repetition whose bounds are the wrong way round");
    } else if (!Skip('*')) {
      return item;
    }
    Skip('?');  // lazy: the same texts
    if (!AtEnd() && (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{')) {
      InvalidPattern("a repetition of a repetition");
    }
    if (max < 0 && MayBeEmpty(item)) {
      UnsupportedPattern("an unbounded repetition of what may be empty");
    }
    PatternNode node;
    node.kind = Kind::kRepeat;
    node.min = min;
    node.max = max;
    node.children.push_back(std::move(item));
    return node;
  }

  int64_t Number() {
    int64_t number = 0;
    size_t digits = 0;
    for (; !AtEnd() && Peek() >= '0' && Peek() <= '9'; ++digits) {
      number =
          std::min<int64_t>(number * 10 + static_cast<int64_t>(Take() - '0'), kMostRepeats + 1);
    }
    if (digits == 0) InvalidPattern("a '{' without a number");
    if (number > kMostRepeats) UnsupportedPattern("more than 1000 repetitions");
    return number;
  }

  uint32_t Hex(int digits) {
    uint32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const uint32_t c = Take();
      const std::string_view kHex = "0123456789abcdef";
      const uint32_t lower = c >= 'A' && c <= 'F' ? c + 32 : c;
      const size_t value = lower < 0x80 ? kHex.find(static_cast<char>(lower)) : kHex.npos;
      if (value == kHex.npos) InvalidPattern("an escape that lacks a hexadecimal digit");
      code = code * 16 + static_cast<uint32_t>(value);
    }
    return code;
  }

  // After a backslash.
  Ranges Escape(bool in_class) {
    const auto one = [](uint32_t c) { return Ranges{{c, c}}; };
    const uint32_t c = Take();
    switch (c) {
      case 'd':
        return is_wide_ ? Together(kDigitRanges, kPastAscii) : kDigitRanges;
      case 'w':
        return is_wide_ ? Together(kWordRanges, kPastAscii) : kWordRanges;
      case 's':
        return is_wide_ ? Together(kSpaceRanges, kDoubtfulSpaces) : kSpaceRanges;
      case 'D':
        return AllButThese(is_wide_ ? kDigitRanges : Together(kDigitRanges, kPastAscii));
      case 'W':
        return AllButThese(is_wide_ ? kWordRanges : Together(kWordRanges, kPastAscii));
      case 'S':
        return AllButThese(is_wide_ ? kSpaceRanges : Together(kSpaceRanges, kDoubtfulSpaces));
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(Hex(2));
      case 'u': {
        const uint32_t code = Hex(4);
        if (code >= 0xD800 && code <= 0xDFFF) UnsupportedPattern("halves of characters");
        return one(code);
      }
      case 'b':
        if (in_class) return one('\b');
        break;
      case '0':
        break;
      default: {
        const bool is_word =
            c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_word && c < 0x80) return one(c);
      }
    }
    UnsupportedPattern("the escape '\\" +
                       (c >= 0x20 && c < 0x7F ? std::string(1, static_cast<char>(c)) : "?") + "'");
  }

  // After "[".
  Ranges Class() {
    const bool is_negated = Skip('^');
    const bool was_wide = is_wide_;
    if (is_negated) is_wide_ = !is_wide_;
    Ranges ranges;
    for (;;) {
      const uint32_t c = Take();
      if (c == ']') break;
      const Ranges first = c == '\\' ? Escape(true) : Ranges{{c, c}};
      const bool is_range = at_ + 1 < text_.size() && Peek() == '-' && text_[at_ + 1] != ']';
      if (!is_range) {
        ranges.insert(ranges.end(), first.begin(), first.end());
        continue;
      }
      Take();
      const uint32_t d = Take();
      const Ranges last = d == '\\' ? Escape(true) : Ranges{{d, d}};
      const bool is_single = first.size() == 1 && last.size() == 1 &&
                             first[0].first == first[0].second && last[0].first == last[0].second;
      if (!is_single) UnsupportedPattern("a range between classes");
      if (first[0].first > last[0].first) InvalidPattern("a range that is the wrong way round");
      ranges.emplace_back(first[0].first, last[0].first);
    }
    is_wide_ = was_wide;
    return is_negated ? AllButThese(ranges) : ranges;
  }

  // Control characters are written for patterns that name them only.
  Ranges AllButThese(const Ranges& ranges) const { return AllBut(ranges, is_wide_ ? 0 : 0x20); }

  std::vector<uint32_t> text_;
  size_t at_ = 0;
  bool is_wide_;
};

}  // namespace

std::vector<PatternBranch> ParsePattern(std::string_view pattern, PatternClasses classes) {
  return PatternParser(pattern, classes).Run();
}

}  // namespace hearth
