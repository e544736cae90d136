#include "text/grammar/grammar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kMostGrammarBytes = size_t{16} << 20;
// The share of an allowance grows in steps, so that threads seldom meet there.
constexpr size_t kShareStep = size_t{16} << 10;
// A vector that grows holds what it held beside what it will hold.
constexpr size_t kSymbolBytes = 3 * sizeof(Grammar::Symbol);
constexpr size_t kAlternativeBytes = 3 * sizeof(uint32_t);
constexpr size_t kRuleBytes = 2 * sizeof(std::vector<uint32_t>) + 32;
constexpr size_t kSetBytes = 4 * sizeof(ByteSet) + 64;
constexpr size_t kRepetitionBytes = 128;

}  // namespace

const Grammar::Repetition& Grammar::RepetitionOfRule(uint32_t rule) const {
  const auto after = std::upper_bound(
      repetitions_.begin(), repetitions_.end(), rule,
      [](uint32_t value, const Repetition& repetition) { return value < repetition.first_rule; });
  return *(after - 1);
}

Grammar::Symbol Grammar::CountedSymbol(uint32_t position) const {
  const uint32_t counted = (position - kFirstCountedPosition) / 3;
  const uint32_t part = (position - kFirstCountedPosition) % 3;
  if (part == 2) return {};
  const Repetition& repetition = RepetitionOfRule(kFirstCounted + counted);
  if (part == 0) return repetition.item;
  const uint32_t left = kFirstCounted + counted - repetition.first_rule;
  return {Symbol::Kind::kRule, repetition.first_rule + (left == 0 ? 0 : left - 1)};
}

size_t Grammar::memory_bytes() const {
  return sizeof(Grammar) + symbols_.capacity() * sizeof(Symbol) +
         (alternatives_.capacity() + alternative_ends_.capacity() + order_.capacity()) *
             sizeof(uint32_t) +
         sets_.capacity() * sizeof(ByteSet) + repetitions_.capacity() * sizeof(Repetition) +
         may_be_empty_.capacity() / 8;
}

GrammarBuilder::GrammarBuilder(std::shared_ptr<GrammarMemory> memory)
    : memory_(std::move(memory)) {}

void GrammarBuilder::CountBytes(size_t bytes) {
  bytes_ += bytes;
  const size_t most = memory_.memory()
                          ? std::min(kMostGrammarBytes, memory_.memory()->limit_bytes())
                          : kMostGrammarBytes;
  if (bytes_ + kShareStep > most) {
    throw Error(
        ErrorCode::kUnsupported, "grammar",
        "it takes more than " + std::to_string(most >> 20) + " MiB: make the schema smaller");
  }
  if (bytes_ <= memory_.bytes()) return;
  if (!memory_.Resize(bytes_ + kShareStep)) {
    throw Error(ErrorCode::kOutOfBudget, "grammar",
                "the schemas of other requests take all memory that there is for them: try again "
                "later");
  }
}

uint32_t GrammarBuilder::NewRule() {
  CountBytes(kRuleBytes);
  rules_.emplace_back();
  return static_cast<uint32_t>(rules_.size() - 1);
}

void GrammarBuilder::AddAlternative(uint32_t rule, const Sequence& sequence) {
  CountBytes(kAlternativeBytes + (sequence.size() + 1) * kSymbolBytes);
  rules_[rule].push_back(static_cast<uint32_t>(grammar_.symbols_.size()));
  grammar_.symbols_.insert(grammar_.symbols_.end(), sequence.begin(), sequence.end());
  grammar_.symbols_.push_back({});
}

GrammarBuilder::Symbol GrammarBuilder::Bytes(const ByteSet& set) {
  const auto known = set_ids_.find(set);
  if (known != set_ids_.end()) return {Symbol::Kind::kBytes, known->second};
  CountBytes(kSetBytes);
  const auto id = static_cast<uint32_t>(grammar_.sets_.size());
  set_ids_.emplace(set, id);
  grammar_.sets_.push_back(set);
  return {Symbol::Kind::kBytes, id};
}

GrammarBuilder::Symbol GrammarBuilder::Byte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return Range(value, value);
}

GrammarBuilder::Symbol GrammarBuilder::Range(unsigned char first, unsigned char last) {
  ByteSet set;
  for (size_t byte = first; byte <= last; ++byte) set.set(byte);
  return Bytes(set);
}

GrammarBuilder::Symbol GrammarBuilder::AnyOf(const std::vector<Sequence>& alternatives) {
  const uint32_t rule = NewRule();
  for (const Sequence& sequence : alternatives) AddAlternative(rule, sequence);
  return Rule(rule);
}

GrammarBuilder::Sequence GrammarBuilder::Literal(std::string_view text) {
  CountBytes(0);
  Sequence sequence;
  sequence.reserve(text.size());
  for (const char byte : text) sequence.push_back(Byte(byte));
  return sequence;
}

// Texts first to last (not included), in order, are alike in their first `common` bytes.
void GrammarBuilder::AddTexts(uint32_t rule, const std::vector<std::string>& texts, size_t first,
                              size_t last, size_t common) {
  if (texts[first].size() == common) {
    AddAlternative(rule, {});
    ++first;
  }
  while (first < last) {
    const char byte = texts[first][common];
    size_t end = first + 1;
    while (end < last && texts[end][common] == byte) ++end;
    // In order: what the first and the last begin with, all begin with.
    const std::string& a = texts[first];
    const std::string& b = texts[end - 1];
    size_t length = common;
    while (length < a.size() && length < b.size() && a[length] == b[length]) ++length;
    Sequence sequence = Literal(std::string_view(a).substr(common, length - common));
    if (end - first > 1) {
      const uint32_t rest = NewRule();
      AddTexts(rest, texts, first, end, length);
      sequence.push_back(Rule(rest));
    }
    AddAlternative(rule, sequence);
    first = end;
  }
}

GrammarBuilder::Symbol GrammarBuilder::OneOf(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const uint32_t rule = NewRule();
  if (!texts.empty()) AddTexts(rule, texts, 0, texts.size(), 0);
  return Rule(rule);
}

uint32_t GrammarBuilder::NextCounted() const {
  if (grammar_.repetitions_.empty()) return Grammar::kFirstCounted;
  const Grammar::Repetition& before = grammar_.repetitions_.back();
  return before.first_rule + before.last + 1;
}

void GrammarBuilder::CheckCounted(uint32_t first, int64_t last) {
  if (last < static_cast<int64_t>(Grammar::kMostCounted) -
                 static_cast<int64_t>(first - Grammar::kFirstCounted)) {
    return;
  }
  throw Error(ErrorCode::kUnsupported, "grammar", "it counts too far: use smaller bounds");
}

GrammarBuilder::Symbol GrammarBuilder::Repeat(const Sequence& item, int64_t min, int64_t max) {
  if (max >= 0 && max < min) return Nothing();
  if (max == 0) return AnyOf({{}});
  const bool is_bounded = max >= 0;
  const uint32_t first = NextCounted();
  const int64_t last = is_bounded ? max : min;
  CheckCounted(first, last);
  CountBytes(kRepetitionBytes);
  Grammar::Repetition repetition;
  repetition.item = item.size() == 1 ? item[0] : AnyOf({item});
  repetition.first_rule = first;
  repetition.last = static_cast<uint32_t>(last);
  repetition.may_end_at = is_bounded ? static_cast<uint32_t>(max - min) : 0;
  repetition.is_bounded = is_bounded;
  grammar_.repetitions_.push_back(repetition);
  return Rule(first + repetition.last);
}

// Rules and repetitions in one row of numbers.
uint32_t GrammarBuilder::NodeOf(uint32_t rule) const {
  if (rule < Grammar::kFirstCounted) return rule;
  const auto index = &grammar_.RepetitionOfRule(rule) - grammar_.repetitions_.data();
  return static_cast<uint32_t>(rules_.size()) + static_cast<uint32_t>(index);
}

bool GrammarBuilder::Holds(const Symbol& symbol, const Found& found) const {
  const uint32_t node = NodeOf(symbol.index);
  return node < rules_.size() ? found.rules[node] : found.repetitions[node - rules_.size()];
}

// Rules of which one alternative has only symbols that hold; repetitions whose item holds, or which
// need none.
template <typename SymbolFn>
GrammarBuilder::Found GrammarBuilder::FindRules(SymbolFn&& holds) const {
  Found found{std::vector<bool>(rules_.size()), std::vector<bool>(grammar_.repetitions_.size())};
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < found.repetitions.size(); ++i) {
      const Grammar::Repetition& repetition = grammar_.repetitions_[i];
      if (found.repetitions[i]) continue;
      const bool needs_none = repetition.MayEnd(repetition.last);
      if (!needs_none && !holds(repetition.item, found)) continue;
      found.repetitions[i] = changed = true;
    }
    // Rules are made of those before them: mostly one round will do.
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      for (uint32_t at : rules_[rule]) {
        if (found.rules[rule]) break;
        while (grammar_.symbols_[at].kind != Symbol::Kind::kEnd &&
               holds(grammar_.symbols_[at], found)) {
          ++at;
        }
        if (grammar_.symbols_[at].kind != Symbol::Kind::kEnd) continue;
        found.rules[rule] = changed = true;
      }
    }
  }
  return found;
}

bool GrammarBuilder::HasTexts(const Symbol& symbol, const Found& found) const {
  return symbol.kind == Symbol::Kind::kBytes ? grammar_.sets_[symbol.index].any()
                                             : Holds(symbol, found);
}

bool GrammarBuilder::HasTexts(Symbol symbol) const {
  const auto has_texts = [&](const Symbol& one, const Found& found) {
    return HasTexts(one, found);
  };
  return HasTexts(symbol, FindRules(has_texts));
}

void GrammarBuilder::DropWhatNoTextHas() {
  const auto has_texts = [&](const Symbol& symbol, const Found& found) {
    return HasTexts(symbol, found);
  };
  const Found found = FindRules(has_texts);
  if (!Holds(Rule(grammar_.start_), found)) {
    throw Error(ErrorCode::kInvalidArgument, "grammar", "it allows no text");
  }
  for (std::vector<uint32_t>& alternatives : rules_) {
    const auto is_dead = [&](uint32_t at) {
      while (grammar_.symbols_[at].kind != Symbol::Kind::kEnd) {
        if (!has_texts(grammar_.symbols_[at++], found)) return true;
      }
      return false;
    };
    alternatives.erase(std::remove_if(alternatives.begin(), alternatives.end(), is_dead),
                       alternatives.end());
  }
}

Grammar GrammarBuilder::Build(uint32_t start) {
  CountBytes(rules_.size() * 2 * sizeof(uint32_t) * 3);
  grammar_.start_ = start;
  DropWhatNoTextHas();
  FindEmptyRules();
  OrderRules();
  grammar_.alternative_ends_.reserve(rules_.size());
  for (const std::vector<uint32_t>& alternatives : rules_) {
    grammar_.alternatives_.insert(grammar_.alternatives_.end(), alternatives.begin(),
                                  alternatives.end());
    grammar_.alternative_ends_.push_back(static_cast<uint32_t>(grammar_.alternatives_.size()));
  }
  Rules().swap(rules_);
  set_ids_.clear();
  grammar_.alternatives_.shrink_to_fit();
  grammar_.symbols_.shrink_to_fit();
  grammar_.sets_.shrink_to_fit();
  grammar_.repetitions_.shrink_to_fit();
  memory_.Resize(std::min(memory_.bytes(), grammar_.memory_bytes()));
  grammar_.memory_ = std::move(memory_);
  return std::move(grammar_);
}

void GrammarBuilder::FindEmptyRules() {
  const auto is_empty = [&](const Symbol& symbol, const Found& found) {
    return symbol.kind == Symbol::Kind::kRule && Holds(symbol, found);
  };
  Found found = FindRules(is_empty);
  // Of a repetition: whether its item may be.
  for (Grammar::Repetition& repetition : grammar_.repetitions_) {
    repetition.item_may_be_empty = is_empty(repetition.item, found);
  }
  grammar_.may_be_empty_ = std::move(found.rules);
}

GrammarBuilder::Symbol GrammarBuilder::Add(const Grammar& grammar) {
  const auto first = static_cast<uint32_t>(rules_.size());
  const auto count = static_cast<uint32_t>(grammar.alternative_ends_.size());
  const uint32_t counted = NextCounted();
  const auto moved = [&](const Symbol& symbol) {
    if (symbol.kind == Symbol::Kind::kBytes) return Bytes(grammar.bytes(symbol.index));
    const uint32_t rule = symbol.index;
    return Rule(rule < Grammar::kFirstCounted ? first + rule
                                              : rule - Grammar::kFirstCounted + counted);
  };
  for (uint32_t rule = 0; rule < count; ++rule) NewRule();
  for (uint32_t rule = 0; rule < count; ++rule) {
    grammar.ForEachAlternative(rule, [&](uint32_t at) {
      Sequence sequence;
      for (; grammar.symbol(at).kind != Symbol::Kind::kEnd; ++at) {
        sequence.push_back(moved(grammar.symbol(at)));
      }
      AddAlternative(first + rule, sequence);
    });
  }
  for (Grammar::Repetition repetition : grammar.repetitions_) {
    CountBytes(kRepetitionBytes);
    CheckCounted(repetition.first_rule - Grammar::kFirstCounted + counted, repetition.last);
    repetition.item = moved(repetition.item);
    repetition.first_rule += counted - Grammar::kFirstCounted;
    grammar_.repetitions_.push_back(repetition);
  }
  return moved(Rule(grammar.start()));
}

// Rules that the texts of a rule may begin with, depth first, without recursion.
void GrammarBuilder::OrderRules() {
  const auto rules = static_cast<uint32_t>(rules_.size());
  const size_t count = rules + grammar_.repetitions_.size();
  std::vector<bool> is_open(count, false), is_done(count, false), is_reached(count, false);
  std::vector<std::pair<uint32_t, bool>> open;  // and whether all that it begins with is done
  grammar_.order_.assign(rules, 0);
  uint32_t next = 0;
  const auto leave = [&](uint32_t node) {
    is_open[node] = false;
    is_done[node] = true;
    if (node < rules) {
      grammar_.order_[node] = next++;
    } else {
      grammar_.repetitions_[node - rules].first_order = next;
      next += grammar_.repetitions_[node - rules].last + 1;
    }
  };
  // What the start can reach; rules that nothing names may be unfinished.
  std::vector<uint32_t> reached = {NodeOf(grammar_.start_)};
  const auto reach = [&](const Symbol& symbol) {
    if (symbol.kind == Symbol::Kind::kRule) reached.push_back(NodeOf(symbol.index));
  };
  while (!reached.empty()) {
    const uint32_t node = reached.back();
    reached.pop_back();
    if (is_reached[node]) continue;
    is_reached[node] = true;
    if (node >= rules) {
      reach(grammar_.repetitions_[node - rules].item);
    } else {
      for (uint32_t at : rules_[node]) {
        while (grammar_.symbols_[at].kind != Symbol::Kind::kEnd) reach(grammar_.symbols_[at++]);
      }
    }
    open.emplace_back(node, false);
    while (!open.empty()) {
      const auto [top, leaving] = open.back();
      open.pop_back();
      if (leaving) {
        leave(top);
      } else if (!is_done[top]) {
        is_open[top] = true;
        open.emplace_back(top, true);
        Open(top, is_open, open);
      }
    }
  }
}

// The rules and repetitions that the texts of a node may begin with.
void GrammarBuilder::Open(uint32_t node, const std::vector<bool>& is_open,
                          std::vector<std::pair<uint32_t, bool>>& open) const {
  const auto fail = [] {
    throw Error(ErrorCode::kInvalidArgument, "grammar", "a rule of it begins with itself");
  };
  if (node >= rules_.size()) {
    const Grammar::Repetition& repetition = grammar_.repetitions_[node - rules_.size()];
    if (!repetition.is_bounded && repetition.item_may_be_empty) fail();
    if (repetition.item.kind != Symbol::Kind::kRule) return;
    const uint32_t item = NodeOf(repetition.item.index);
    if (is_open[item]) fail();
    open.emplace_back(item, false);
    return;
  }
  for (uint32_t at : rules_[node]) {
    for (;; ++at) {
      const Symbol& symbol = grammar_.symbols_[at];
      if (symbol.kind != Symbol::Kind::kRule) break;
      const uint32_t next = NodeOf(symbol.index);
      if (is_open[next]) fail();
      open.emplace_back(next, false);
      if (!grammar_.may_be_empty(symbol.index)) break;
    }
  }
}

}  // namespace hearth
