// Grammars over bytes, which say what a model may write: for answers that must be JSON of a schema.
//
// Rules have alternatives, alternatives are sequences of byte sets and rules. Any context-free
// grammar without left recursion will do. The parts:
//   Grammar            the rules, immutable, shared by all sessions (json_schema_grammar.h makes
//   them) SortedVocabulary   the bytes of all tokens, immutable, one per model GrammarMatcher where
//   one session is in its grammar
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hearth {

using ByteSet = std::bitset<256>;

class Grammar {
 public:
  struct Symbol {
    enum class Kind : uint8_t { kEnd, kBytes, kRule };
    Kind kind = Kind::kEnd;
    uint32_t index = 0;  // of the byte set or the rule
  };

  // Every text of the grammar is one of rule `start`. Immutable and thread-safe.
  uint32_t start() const { return start_; }
  // Where the alternatives of a rule begin; each ends with a symbol kEnd.
  const std::vector<uint32_t>& alternatives(uint32_t rule) const { return rules_[rule]; }
  const Symbol& symbol(uint32_t position) const { return symbols_[position]; }
  const ByteSet& bytes(uint32_t index) const { return sets_[index]; }
  bool may_be_empty(uint32_t rule) const { return may_be_empty_[rule]; }
  // Rules so numbered that every rule has a larger number than those that its texts may begin with.
  uint32_t order(uint32_t rule) const { return order_[rule]; }
  uint32_t rule_at(uint32_t order) const { return rules_in_order_[order]; }
  size_t symbol_count() const { return symbols_.size(); }

 private:
  friend class GrammarBuilder;
  uint32_t start_ = 0;
  std::vector<std::vector<uint32_t>> rules_;
  std::vector<Symbol> symbols_;
  std::vector<ByteSet> sets_;
  std::vector<bool> may_be_empty_;                // by rule
  std::vector<uint32_t> order_, rules_in_order_;  // each the other's inverse
};

class GrammarBuilder {
 public:
  using Symbol = Grammar::Symbol;
  using Sequence = std::vector<Symbol>;

  // A rule without alternatives yet, so that rules may name each other.
  uint32_t NewRule();
  // Throws Error(kUnsupported) where the grammar grows past a million symbols.
  void AddAlternative(uint32_t rule, const Sequence& sequence);

  static Symbol Rule(uint32_t rule) { return {Symbol::Kind::kRule, rule}; }
  Symbol Bytes(const ByteSet& set);
  const ByteSet& SetOf(Symbol bytes) const { return grammar_.sets_[bytes.index]; }
  Symbol Byte(char byte);
  Symbol Range(unsigned char first, unsigned char last);
  // The rules of a whole grammar: its start.
  Symbol Add(const Grammar& grammar);
  // A rule with these alternatives.
  Symbol AnyOf(const std::vector<Sequence>& alternatives);
  Sequence Literal(std::string_view text);
  // `item` between min and max times; -1: without bound.
  Symbol Repeat(const Sequence& item, int64_t min, int64_t max);

  // Throws Error(kInvalidArgument) where a rule begins with itself.
  Grammar Build(uint32_t start);

 private:
  void FindEmptyRules();
  void OrderRules();
  void OpenFirstRules(uint32_t rule, const std::vector<bool>& is_open,
                      std::vector<std::pair<uint32_t, bool>>& open) const;

  Grammar grammar_;
  std::unordered_map<ByteSet, uint32_t> set_ids_;
};

}  // namespace hearth
