#include "text/grammar/json_string_language.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "text/grammar/json_schema_parts.h"
#include "text/tokenizer/utf8.h"

namespace hearth {
namespace {

using Symbol = Grammar::Symbol;
using Sequence = GrammarBuilder::Sequence;
using CharacterRanges = std::vector<CodePointRange>;

constexpr uint32_t kLast = 0x10FFFF;
constexpr size_t kMostPositions = 20'000;  // of one pattern
constexpr size_t kMostPlaces = 3'000;      // of all together
constexpr int64_t kMostWork = 3'000'000;   // positions looked at
// A bound that is far away is kept as this many characters more than are required.
constexpr int64_t kFarBounds[] = {400, 60};

std::string EscapedCharacter(uint32_t c) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  const size_t known = kShort.find(static_cast<char>(c));
  if (known != std::string_view::npos) return {'\\', kLetters[known]};
  return fmt::format("\\u{:04x}", c);
}

std::string Utf8Of(uint32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x800) return {static_cast<char>(0xC0 | (c >> 6)), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | (c >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | (c >> 18)), tail(12), tail(6), tail(0)};
}

// Characters past ASCII, in ranges whose bytes vary independently of each other.
void AddUtf8(GrammarBuilder& builder, uint32_t first, uint32_t last,
             std::vector<Sequence>& alternatives) {
  if (first > last) return;
  const auto split = [&](uint32_t end_of_first) {
    AddUtf8(builder, first, end_of_first, alternatives);
    AddUtf8(builder, end_of_first + 1, last, alternatives);
  };
  // Where the length changes, and before, in and after the surrogates, which are no characters.
  for (const uint32_t border : {0x7FFu, 0xD7FFu, 0xDFFFu, 0xFFFFu}) {
    if (first <= border && border < last) return split(border);
  }
  if (first >= 0xD800 && last <= 0xDFFF) return;
  for (const int bits : {6, 12, 18}) {
    const uint32_t low = (1u << bits) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) return split(first | low);
    if ((last & low) != low) return split((last & ~low) - 1);
  }
  const std::string from = Utf8Of(first), to = Utf8Of(last);
  Sequence bytes;
  for (size_t i = 0; i < from.size(); ++i) {
    bytes.push_back(
        builder.Range(static_cast<unsigned char>(from[i]), static_cast<unsigned char>(to[i])));
  }
  alternatives.push_back(std::move(bytes));
}

std::vector<uint32_t> CodePointsOf(std::string_view text) {
  std::vector<uint32_t> points;
  while (!text.empty()) {
    const Utf8Char next = ScanUtf8(text);
    points.push_back(next.status == Utf8Status::kComplete ? next.code_point : 0xFFFD);
    text.remove_prefix(std::max<size_t>(next.length, 1));
  }
  return points;
}

bool Holds(const CharacterRanges& ranges, uint32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CodePointRange& range) {
    return range.first <= c && c <= range.second;
  });
}

}  // namespace

Symbol JsonCharacters(GrammarBuilder& builder, const CharacterRanges& ranges) {
  std::vector<Sequence> alternatives;
  ByteSet plain;
  for (const auto& [first, last] : ranges) {
    for (uint32_t c = first; c <= std::min<uint32_t>(last, 0x7F); ++c) {
      if (c < 0x20 || c == '"' || c == '\\') {
        alternatives.push_back(builder.Literal(EscapedCharacter(c)));
      } else {
        plain.set(c);
      }
    }
    if (last > 0x7F) AddUtf8(builder, std::max<uint32_t>(first, 0x80), last, alternatives);
  }
  if (plain.any()) alternatives.push_back({builder.Bytes(plain)});
  return builder.AnyOf(alternatives);
}

uint32_t StringLanguage::NewState(Automaton& automaton) {
  if (automaton.states.size() >= kMostPositions) {
    UnsupportedSchema("'pattern' that is too long to be kept together with other bounds");
  }
  automaton.states.emplace_back();
  return static_cast<uint32_t>(automaton.states.size() - 1);
}

// Returns the state after `node`.
uint32_t StringLanguage::Append(Automaton& automaton, uint32_t from,
                                const PatternNode& node) const {
  switch (node.kind) {
    case PatternNode::Kind::kCharacters: {
      const uint32_t at = NewState(automaton), next = NewState(automaton);
      automaton.states[from].empty.push_back(at);
      automaton.states[at].ranges = node.ranges;
      automaton.states[at].next = next;
      return next;
    }
    case PatternNode::Kind::kSequence:
      for (const PatternNode& child : node.children) from = Append(automaton, from, child);
      return from;
    case PatternNode::Kind::kAlternatives: {
      const uint32_t end = NewState(automaton);
      for (const PatternNode& child : node.children) {
        const uint32_t begin = NewState(automaton);
        automaton.states[from].empty.push_back(begin);
        automaton.states[Append(automaton, begin, child)].empty.push_back(end);
      }
      return end;
    }
    case PatternNode::Kind::kRepeat:
      break;
  }
  const uint32_t end = NewState(automaton);
  for (int64_t i = 0; i < node.min; ++i) from = Append(automaton, from, node.children[0]);
  for (int64_t i = node.min; i < node.max; ++i) {
    automaton.states[from].empty.push_back(end);
    from = Append(automaton, from, node.children[0]);
  }
  if (node.max < 0) {
    const uint32_t loop = NewState(automaton);
    automaton.states[from].empty.push_back(loop);
    automaton.states[Append(automaton, loop, node.children[0])].empty.push_back(loop);
    from = loop;
  }
  automaton.states[from].empty.push_back(end);
  return end;
}

StringLanguage::Automaton StringLanguage::Make(const std::vector<PatternBranch>& branches) const {
  Automaton automaton;
  automaton.start = NewState(automaton);
  automaton.end = NewState(automaton);
  const auto add_any = [&](uint32_t state, const Ranges& ranges) {
    automaton.states[state].ranges = ranges;
    automaton.states[state].next = state;
  };
  automaton.any_end = NewState(automaton);
  add_any(automaton.any_end, {{0, kLast}});
  automaton.states[automaton.any_end].empty.push_back(automaton.end);
  for (const PatternBranch& branch : branches) {
    uint32_t at = NewState(automaton);
    automaton.states[automaton.start].empty.push_back(at);
    if (!branch.at_start) {
      add_any(at, {{0, kLast}});
      const uint32_t begin = NewState(automaton);
      automaton.states[at].empty.push_back(begin);
      at = begin;
    }
    for (const PatternNode& item : branch.items) at = Append(automaton, at, item);
    automaton.states[at].empty.push_back(branch.at_end ? automaton.end : automaton.any_end);
  }
  return automaton;
}

void StringLanguage::Require(const std::vector<PatternBranch>& branches) {
  Add(Make(branches));
  for (const PatternBranch& branch : branches) {
    if (!branch.conditions.empty() && branches.size() > 1) {
      UnsupportedSchema("'pattern' with conditions in one of several alternatives, '(?'");
    }
    for (const PatternCondition& condition : branch.conditions) {
      Automaton automaton = Make(condition.branches);
      automaton.is_negated = condition.is_negated;
      Add(std::move(automaton));
    }
  }
}

void StringLanguage::Require(std::string_view pattern, PatternClasses classes) {
  Require(ParsePattern(pattern, classes));
}

void StringLanguage::Forbid(std::string_view pattern) {
  const std::vector<PatternBranch> branches = ParsePattern(pattern, PatternClasses::kWide);
  for (const PatternBranch& branch : branches) {
    if (!branch.conditions.empty()) {
      UnsupportedSchema("'pattern' with conditions, which must not match");
    }
  }
  Automaton automaton = Make(branches);
  automaton.is_negated = true;
  Add(std::move(automaton));
}

void StringLanguage::ForbidTexts(const std::vector<std::string>& texts) {
  std::vector<PatternBranch> branches;
  for (const std::string& text : texts) {
    PatternBranch& branch = branches.emplace_back();
    branch.at_start = branch.at_end = true;
    for (const uint32_t c : CodePointsOf(text)) {
      PatternNode& node = branch.items.emplace_back();
      node.kind = PatternNode::Kind::kCharacters;
      node.ranges = {{c, c}};
    }
  }
  Automaton automaton = Make(branches);
  automaton.is_negated = true;
  Add(std::move(automaton));
}

void StringLanguage::Bound(int64_t min, int64_t max) {
  min_ = std::max(min_, min);
  if (max >= 0) max_ = max_ < 0 ? max : std::min(max_, max);
}

// All that no character leads to as well.
void StringLanguage::Close(const Automaton& automaton, States& states) {
  std::vector<bool> is_there(automaton.states.size());
  States open = states;
  for (const uint32_t state : states) is_there[state] = true;
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    for (const uint32_t next : automaton.states[state].empty) {
      if (is_there[next]) continue;
      is_there[next] = true;
      open.push_back(next);
      states.push_back(next);
    }
  }
  // Only those matter that a character leaves, and the end.
  states.erase(std::remove_if(states.begin(), states.end(),
                              [&](uint32_t state) {
                                return automaton.states[state].ranges.empty() &&
                                       state != automaton.end;
                              }),
               states.end());
  std::sort(states.begin(), states.end());
}

StringLanguage::Place StringLanguage::Start() const {
  Place place;
  for (const Automaton& automaton : automata_) {
    place.parts.push_back({automaton.start});
    Close(automaton, place.parts.back());
  }
  return place;
}

StringLanguage::Place StringLanguage::Next(const Place& place, uint32_t code_point,
                                           int64_t max) const {
  Place next;
  // Past what must be, lengths do not matter where there is no upper bound.
  next.length = max < 0 ? std::min(place.length + 1, min_) : place.length + 1;
  for (size_t i = 0; i < automata_.size(); ++i) {
    States& states = next.parts.emplace_back();
    for (const uint32_t state : place.parts[i]) {
      const Automaton::State& from = automata_[i].states[state];
      if (Holds(from.ranges, code_point)) states.push_back(from.next);
    }
    std::sort(states.begin(), states.end());
    states.erase(std::unique(states.begin(), states.end()), states.end());
    Close(automata_[i], states);
  }
  return next;
}

bool StringLanguage::IsDead(const Place& place) const {
  for (size_t i = 0; i < automata_.size(); ++i) {
    const States& states = place.parts[i];
    if (!automata_[i].is_negated && states.empty()) return true;
    const bool matches_all = std::binary_search(states.begin(), states.end(), automata_[i].any_end);
    if (automata_[i].is_negated && matches_all) return true;
  }
  return false;
}

bool StringLanguage::MayEnd(const Place& place) const {
  if (place.length < min_) return false;
  for (size_t i = 0; i < automata_.size(); ++i) {
    const bool ends =
        std::binary_search(place.parts[i].begin(), place.parts[i].end(), automata_[i].end);
    if (ends == automata_[i].is_negated) return false;
  }
  return true;
}

// Characters that lead on, and to where; those that lead to one place together.
std::vector<std::pair<StringLanguage::Ranges, StringLanguage::Place>> StringLanguage::Followers(
    const Place& place, int64_t max) const {
  if (max >= 0 && place.length >= max) return {};
  std::set<uint32_t> borders = {0x20, kLast + 1};
  // Control characters only where a pattern names them, and no other is against it.
  bool has_control = true, any_names = false;
  for (size_t i = 0; i < automata_.size(); ++i) {
    bool names = false, takes_any = false;
    for (const uint32_t state : place.parts[i]) {
      const Ranges& ranges = automata_[i].states[state].ranges;
      const bool is_any = ranges.size() == 1 && ranges[0] == CodePointRange{0, kLast};
      takes_any |= is_any;
      for (const auto& [first, last] : ranges) {
        borders.insert(first);
        borders.insert(last + 1);
        names |= !is_any && first < 0x20;
      }
    }
    if (automata_[i].is_negated) continue;
    has_control &= names || takes_any;
    any_names |= names;
  }
  has_control &= any_names;
  std::map<Place, Ranges> followers;
  for (auto border = borders.begin(); std::next(border) != borders.end(); ++border) {
    const uint32_t first = *border, last = *std::next(border) - 1;
    if (first > kLast || (last < 0x20 && !has_control)) continue;
    Place next = Next(place, first, max);
    if (!IsDead(next)) followers[std::move(next)].emplace_back(first, last);
  }
  std::vector<std::pair<Ranges, Place>> list;
  for (const auto& [next, ranges] : followers) list.emplace_back(ranges, next);
  return list;
}

// False: there are too many places.
bool StringLanguage::CompileWithin(GrammarBuilder& builder, int64_t max, Symbol& symbol) const {
  std::map<Place, uint32_t> rules;
  std::map<Ranges, Symbol> characters;
  std::vector<const Place*> open;
  int64_t work = 0;
  const auto rule_of = [&](const Place& place) {
    const auto [known, is_new] = rules.emplace(place, 0);
    if (is_new) {
      size_t size = 200;
      for (const States& states : place.parts) size += 24 + 4 * states.size();
      builder.CountBytes(size);
      known->second = builder.NewRule();
      open.push_back(&known->first);
    }
    return known->second;
  };
  const uint32_t start = rule_of(Start());
  while (!open.empty()) {
    const Place& place = *open.back();
    open.pop_back();
    const uint32_t rule = rules.at(place);
    if (MayEnd(place)) builder.AddAlternative(rule, {});
    for (const auto& [ranges, next] : Followers(place, max)) {
      for (const States& states : next.parts) work += static_cast<int64_t>(states.size()) + 8;
      auto known = characters.find(ranges);
      if (known == characters.end()) {
        known = characters.emplace(ranges, JsonCharacters(builder, ranges)).first;
      }
      builder.AddAlternative(rule, {known->second, GrammarBuilder::Rule(rule_of(next))});
    }
    if (rules.size() > kMostPlaces || work > kMostWork) return false;
  }
  const Symbol quote = builder.Byte('"');
  symbol = builder.AnyOf({{quote, GrammarBuilder::Rule(start), quote}});
  return true;
}

Symbol StringLanguage::Compile(GrammarBuilder& builder) const {
  Symbol symbol;
  if (max_ >= 0 && max_ < min_) return builder.Nothing();
  std::vector<int64_t> bounds = {max_};
  if (max_ < 0 || max_ > min_ + kFarBounds[0]) {
    bounds = max_ < 0 ? std::vector<int64_t>{-1} : std::vector<int64_t>{};
    for (const int64_t far : kFarBounds) bounds.push_back(min_ + far);
  }
  for (const int64_t max : bounds) {
    if (CompileWithin(builder, max, symbol)) return symbol;
  }
  UnsupportedSchema("'pattern', 'format' and lengths that are too much to be kept together");
}

bool StringLanguage::IsEmpty() const {
  if (max_ >= 0 && max_ < min_) return true;
  constexpr size_t kMostTried = 300;
  std::set<Place> seen = {Start()};
  std::vector<Place> open = {*seen.begin()};
  if (IsDead(open[0])) return true;
  while (!open.empty()) {
    const Place place = std::move(open.back());
    open.pop_back();
    if (MayEnd(place)) return false;
    for (auto& [ranges, next] : Followers(place, max_)) {
      if (seen.size() > kMostTried) return false;
      if (seen.insert(next).second) open.push_back(std::move(next));
    }
  }
  return true;
}

bool StringLanguage::Matches(std::string_view text) const {
  Place place = Start();
  for (const uint32_t c : CodePointsOf(text)) {
    if (IsDead(place) || (max_ >= 0 && place.length >= max_)) return false;
    place = Next(place, c, max_);
  }
  return !IsDead(place) && MayEnd(place);
}

}  // namespace hearth
