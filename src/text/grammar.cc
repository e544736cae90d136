#include "text/grammar.h"

#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kMaxSymbols = 1'000'000;

}  // namespace

uint32_t GrammarBuilder::NewRule() {
  grammar_.rules_.emplace_back();
  return static_cast<uint32_t>(grammar_.rules_.size() - 1);
}

void GrammarBuilder::AddAlternative(uint32_t rule, const Sequence& sequence) {
  if (grammar_.symbols_.size() + sequence.size() >= kMaxSymbols) {
    throw Error(ErrorCode::kUnsupported, "grammar", "it has more than a million symbols");
  }
  grammar_.rules_[rule].push_back(static_cast<uint32_t>(grammar_.symbols_.size()));
  grammar_.symbols_.insert(grammar_.symbols_.end(), sequence.begin(), sequence.end());
  grammar_.symbols_.push_back({});
}

GrammarBuilder::Symbol GrammarBuilder::Bytes(const ByteSet& set) {
  const auto [place, is_new] = set_ids_.emplace(set, static_cast<uint32_t>(grammar_.sets_.size()));
  if (is_new) grammar_.sets_.push_back(set);
  return {Symbol::Kind::kBytes, place->second};
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
  Sequence sequence;
  for (const char byte : text) sequence.push_back(Byte(byte));
  return sequence;
}

GrammarBuilder::Symbol GrammarBuilder::Repeat(const Sequence& item, int64_t min, int64_t max) {
  const Symbol one = AnyOf({item});
  // What may follow the items that must be: from the end to the front.
  const uint32_t none = NewRule();
  AddAlternative(none, {});
  uint32_t rest = none;
  if (max < 0) {
    rest = NewRule();
    AddAlternative(rest, {});
    AddAlternative(rest, {one, Rule(rest)});
  }
  for (int64_t i = min; i < max; ++i) {
    const uint32_t longer = NewRule();
    AddAlternative(longer, {});
    AddAlternative(longer, {one, Rule(rest)});
    rest = longer;
  }
  for (int64_t i = 0; i < min; ++i) {
    const uint32_t longer = NewRule();
    AddAlternative(longer, {one, Rule(rest)});
    rest = longer;
  }
  return Rule(rest);
}

Grammar GrammarBuilder::Build(uint32_t start) {
  grammar_.start_ = start;
  FindEmptyRules();
  OrderRules();
  return std::move(grammar_);
}

void GrammarBuilder::FindEmptyRules() {
  const size_t count = grammar_.rules_.size();
  std::vector<bool>& may_be_empty = grammar_.may_be_empty_;
  may_be_empty.assign(count, false);
  const auto is_empty = [&](const Symbol& symbol) {
    return symbol.kind == Symbol::Kind::kRule && may_be_empty[symbol.index];
  };
  for (bool changed = true; changed;) {
    changed = false;
    // Repetitions are made of rules before them: mostly one round will do.
    for (size_t rule = 0; rule < count; ++rule) {
      for (uint32_t at : grammar_.rules_[rule]) {
        while (is_empty(grammar_.symbols_[at])) ++at;
        if (may_be_empty[rule] || grammar_.symbols_[at].kind != Symbol::Kind::kEnd) continue;
        may_be_empty[rule] = changed = true;
      }
    }
  }
}

GrammarBuilder::Symbol GrammarBuilder::Add(const Grammar& grammar) {
  const auto first = static_cast<uint32_t>(grammar_.rules_.size());
  for (size_t rule = 0; rule < grammar.rules_.size(); ++rule) NewRule();
  for (uint32_t rule = 0; rule < grammar.rules_.size(); ++rule) {
    for (uint32_t at : grammar.alternatives(rule)) {
      Sequence sequence;
      for (; grammar.symbol(at).kind != Symbol::Kind::kEnd; ++at) {
        const Symbol symbol = grammar.symbol(at);
        const bool is_rule = symbol.kind == Symbol::Kind::kRule;
        sequence.push_back(is_rule ? Rule(first + symbol.index)
                                   : Bytes(grammar.bytes(symbol.index)));
      }
      AddAlternative(first + rule, sequence);
    }
  }
  return Rule(first + grammar.start());
}

// Rules that the texts of a rule may begin with, depth first, without recursion.
void GrammarBuilder::OrderRules() {
  const auto count = static_cast<uint32_t>(grammar_.rules_.size());
  std::vector<bool> is_open(count, false), is_done(count, false);
  std::vector<std::pair<uint32_t, bool>> open;  // and whether all that it begins with is done
  grammar_.order_.assign(count, 0);
  for (uint32_t first = 0; first < count; ++first) {
    open.emplace_back(first, false);
    while (!open.empty()) {
      const auto [rule, leaving] = open.back();
      open.pop_back();
      if (leaving) {
        is_open[rule] = false;
        is_done[rule] = true;
        grammar_.order_[rule] = static_cast<uint32_t>(grammar_.rules_in_order_.size());
        grammar_.rules_in_order_.push_back(rule);
      } else if (!is_done[rule]) {
        is_open[rule] = true;
        open.emplace_back(rule, true);
        OpenFirstRules(rule, is_open, open);
      }
    }
  }
}

void GrammarBuilder::OpenFirstRules(uint32_t rule, const std::vector<bool>& is_open,
                                    std::vector<std::pair<uint32_t, bool>>& open) const {
  for (uint32_t at : grammar_.rules_[rule]) {
    for (;; ++at) {
      const Symbol& symbol = grammar_.symbols_[at];
      if (symbol.kind != Symbol::Kind::kRule) break;
      if (is_open[symbol.index]) {
        throw Error(ErrorCode::kInvalidArgument, "grammar", "a rule of it begins with itself");
      }
      open.emplace_back(symbol.index, false);
      if (!grammar_.may_be_empty_[symbol.index]) break;
    }
  }
}

}  // namespace hearth
