// Grammars over bytes, which say what a model may write: for answers that must be JSON of a schema.
//
// Rules have alternatives, alternatives are sequences of byte sets and rules. Any context-free
// grammar without left recursion will do. The parts:
//   Grammar           the rules, immutable, shared by all sessions (json_schema_grammar.h makes
//                     them)
//   SortedVocabulary  the bytes of all tokens, immutable, one per model
//   GrammarMatcher    where one session is in its grammar
//
// A repetition takes a few bytes whatever its bounds are: the rules that count it are computed when
// they are asked for.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/grammar_memory.h"

namespace hearth {

using ByteSet = std::bitset<256>;

class Grammar {
 public:
  struct Symbol {
    enum class Kind : uint32_t { kEnd, kBytes, kRule };

    Symbol() : kind(Kind::kEnd), index(0) {}
    Symbol(Kind of_kind, uint32_t of_index) : kind(of_kind), index(of_index) {}

    Kind kind : 2;
    uint32_t index : 30;  // of the byte set or the rule
  };

  // Every text of the grammar is one of rule `start`. Immutable and thread-safe.
  uint32_t start() const { return start_; }
  // Calls fn with the position where each alternative of a rule begins; each ends with a symbol
  // kEnd.
  template <typename Fn>
  void ForEachAlternative(uint32_t rule, Fn&& fn) const {
    if (rule < kFirstCounted) {
      const uint32_t end = alternative_ends_[rule];
      for (uint32_t i = rule == 0 ? 0 : alternative_ends_[rule - 1]; i < end; ++i) {
        fn(alternatives_[i]);
      }
      return;
    }
    const Repetition& repetition = RepetitionOfRule(rule);
    const uint32_t left = rule - repetition.first_rule;
    const uint32_t position = kFirstCountedPosition + 3 * (rule - kFirstCounted);
    if (repetition.MayEnd(left)) fn(position + 2);
    if (repetition.MayGoOn(left)) fn(position);
  }
  Symbol symbol(uint32_t position) const {
    return position < kFirstCountedPosition ? symbols_[position] : CountedSymbol(position);
  }
  const ByteSet& bytes(uint32_t index) const { return sets_[index]; }
  bool may_be_empty(uint32_t rule) const {
    if (rule < kFirstCounted) return may_be_empty_[rule];
    const Repetition& repetition = RepetitionOfRule(rule);
    return repetition.item_may_be_empty || repetition.MayEnd(rule - repetition.first_rule);
  }
  // Rules so numbered that every rule has a larger number than those that its texts may begin with.
  uint32_t order(uint32_t rule) const {
    if (rule < kFirstCounted) return order_[rule];
    const Repetition& repetition = RepetitionOfRule(rule);
    return repetition.first_order + (rule - repetition.first_rule);
  }
  // What it takes.
  size_t memory_bytes() const;

 private:
  friend class GrammarBuilder;
  // Rules and positions from these numbers on are those of repetitions, which nothing holds.
  static constexpr uint32_t kFirstCounted = uint32_t{1} << 28;
  static constexpr uint32_t kFirstCountedPosition = uint32_t{1} << 30;
  // Three positions each: the item, the rule of what is left, the end.
  static constexpr uint32_t kMostCounted = (UINT32_MAX - kFirstCountedPosition) / 3 - 1;

  // Rule first_rule + n: with an upper bound, what may follow where at most n items are left; else
  // what must where at least n are.
  struct Repetition {
    Symbol item;
    uint32_t first_rule = 0;
    uint32_t last = 0;        // n of the whole
    uint32_t may_end_at = 0;  // it may end where no more than this many are left
    uint32_t first_order = 0;
    bool is_bounded = false;
    bool item_may_be_empty = false;

    bool MayEnd(uint32_t left) const { return left <= may_end_at; }
    bool MayGoOn(uint32_t left) const { return left > 0 || !is_bounded; }
  };
  const Repetition& RepetitionOfRule(uint32_t rule) const;
  Symbol CountedSymbol(uint32_t position) const;

  uint32_t start_ = 0;
  std::vector<uint32_t> alternative_ends_;  // by rule, in alternatives_
  std::vector<uint32_t> alternatives_;      // positions
  std::vector<Symbol> symbols_;
  std::vector<ByteSet> sets_;
  std::vector<Repetition> repetitions_;  // by first_rule
  std::vector<bool> may_be_empty_;       // by rule
  std::vector<uint32_t> order_;          // by rule
  GrammarShare memory_;                  // what it takes of an allowance
};

class GrammarBuilder {
 public:
  using Symbol = Grammar::Symbol;
  using Sequence = std::vector<Symbol>;

  // What is made is counted in `memory` before it is taken; null: only a grammar's own bound holds.
  explicit GrammarBuilder(std::shared_ptr<GrammarMemory> memory = nullptr);

  // A rule without alternatives yet, so that rules may name each other.
  uint32_t NewRule();
  // Throws Error(kUnsupported) where the grammar grows past its bound, Error(kOutOfBudget) where
  // the allowance has no more.
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
  // A rule without alternatives: what it is part of cannot be written.
  Symbol Nothing() { return AnyOf({}); }
  Sequence Literal(std::string_view text);
  // One of these texts. They share what they begin with.
  Symbol OneOf(std::vector<std::string> texts);
  // `item` between min and max times; -1: without bound. Bounds past hundreds of millions are
  // refused with Error(kUnsupported).
  Symbol Repeat(const Sequence& item, int64_t min, int64_t max);
  const std::shared_ptr<GrammarMemory>& memory() const { return memory_.memory(); }
  // Counts what is made besides rules on the way to the grammar.
  void CountBytes(size_t bytes);

  // Whether there is any text that the symbol stands for.
  bool HasTexts(Symbol symbol) const;
  // Alternatives that no text can have are left out. Throws Error(kInvalidArgument) where a rule
  // that can be reached begins with itself, or no text is left.
  Grammar Build(uint32_t start);

 private:
  using Rules = std::vector<std::vector<uint32_t>>;

  // Of one pass over all rules and repetitions.
  struct Found {
    std::vector<bool> rules, repetitions;
  };
  // The first rule of the next repetition; throws Error(kUnsupported) where one from there on to so
  // many more is too far.
  uint32_t NextCounted() const;
  static void CheckCounted(uint32_t first, int64_t last);
  bool Holds(const Symbol& symbol, const Found& found) const;
  template <typename SymbolFn>
  Found FindRules(SymbolFn&& holds) const;
  void FindEmptyRules();
  bool HasTexts(const Symbol& symbol, const Found& found) const;
  void DropWhatNoTextHas();
  void OrderRules();
  void Open(uint32_t node, const std::vector<bool>& is_open,
            std::vector<std::pair<uint32_t, bool>>& open) const;
  uint32_t NodeOf(uint32_t rule) const;
  void AddTexts(uint32_t rule, const std::vector<std::string>& texts, size_t first, size_t last,
                size_t common);

  GrammarShare memory_;
  size_t bytes_ = 0;  // counted so far
  Grammar grammar_;
  Rules rules_;  // the alternatives of each, until Build
  std::unordered_map<ByteSet, uint32_t> set_ids_;
};

}  // namespace hearth
