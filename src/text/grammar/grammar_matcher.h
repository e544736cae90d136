// Which tokens a grammar allows next, for one session.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// How a control token stands in a grammar: as four bytes that no text has, 0xFF and its number.
// Only grammars that ask for such bytes allow it.
std::string ControlTokenBytes(TokenId id);

// The tokens of a model in the order of their bytes, so that those with a common beginning are
// tried together. Immutable and thread-safe: one for all sessions.
class SortedVocabulary {
 public:
  // Unknown and unused tokens, and tokens without bytes, are never part of a text. The tokenizer
  // must outlive it.
  explicit SortedVocabulary(const Tokenizer& tokenizer);
  SortedVocabulary(const SortedVocabulary&) = delete;
  SortedVocabulary& operator=(const SortedVocabulary&) = delete;

  struct Entry {
    std::string_view bytes;
    TokenId id = 0;
    size_t common = 0;  // bytes shared with the entry before
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<TokenId>& ends() const { return ends_; }  // end of generation
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  const Tokenizer& tokenizer_;
  std::deque<std::string> control_bytes_;  // of entries
  std::vector<Entry> entries_;
  std::vector<TokenId> ends_;
};

// Bit `id` of word id / 64: may the token come next?
using TokenMask = std::vector<uint64_t>;

inline bool IsAllowed(const TokenMask& mask, TokenId id) {
  const auto bit = static_cast<size_t>(id);
  return bit / 64 < mask.size() && ((mask[bit / 64] >> (bit % 64)) & 1) != 0;
}

inline bool IsEmpty(const TokenMask& mask) {
  return std::all_of(mask.begin(), mask.end(), [](uint64_t word) { return word == 0; });
}

// The state of one session: all ways in which the text so far can be read, those that go on alike
// as one. States that were reached before are remembered, with the tokens they allow, so that a
// step inside of a string, say, costs nothing. A call that would take more than some tens of
// milliseconds throws Error(kUnsupported), the constructor too. Used by one thread.
class GrammarMatcher {
 public:
  GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                 std::shared_ptr<const SortedVocabulary> vocabulary);

  // Tokens that may come next; those that end the text where it may end here. Never empty, unless
  // no token of the vocabulary fits. Valid until the next call.
  const TokenMask& AllowedTokens();
  // False, and nothing changed, where the token is not allowed.
  bool Advance(TokenId id);
  bool AdvanceBytes(std::string_view bytes);
  // The text so far is a whole one, though it may go on.
  bool IsFinished() const { return states_[current_].may_end; }

 private:
  using StateId = uint32_t;
  static constexpr StateId kDead = 0;

  // A position in the grammar, and where its rule may return to: one of stacks_.
  struct Thread {
    uint32_t position = 0;
    uint32_t stack = 0;
    auto operator<=>(const Thread&) const = default;
  };
  using Threads = std::vector<Thread>;  // sorted, each once
  struct State {
    Threads threads;  // each stands before a byte set
    bool may_end = false;
    // By byte: 1 + the index of the state that follows, 0 where that is not known yet.
    std::vector<uint8_t> classes;  // empty: nothing is known yet
    std::vector<StateId> followers;
    TokenMask mask;  // empty: not computed yet
  };
  // Who calls a rule at one place of the text.
  struct Callers {
    uint32_t rule = 0;
    Threads returns;              // what follows the call, in any order
    std::vector<uint32_t> tails;  // stacks of calls that nothing follows
  };
  // A state that is being made.
  struct Closure {
    Threads threads;
    bool may_end = false;
    std::map<uint32_t, Callers, std::greater<>> calls;  // by the rule's order, callers first
  };

  void BeginCall();
  void CountSteps(size_t steps);
  void CountBytes(size_t bytes);
  uint32_t StackOf(Callers callers);
  uint32_t StackOf(Threads returns);
  // From the position over rules that may be empty: the symbol where it stops.
  Grammar::Symbol::Kind Follow(Thread thread, Closure& closure);
  void FollowStarts(Threads starts, Closure& closure);
  StateId StateOf(Closure closure);
  StateId Keep(State state);
  StateId Next(StateId state, uint8_t byte);
  StateId NextOf(StateId state, std::string_view bytes);
  void Reset();
  void ForgetIfLarge();
  void ComputeMask(StateId state);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const SortedVocabulary> vocabulary_;
  std::vector<Threads> stacks_;  // each of such before it, so that what texts share is there once
  std::map<Threads, uint32_t> stack_ids_;
  std::vector<State> states_;
  std::map<std::pair<Threads, bool>, StateId> state_ids_;
  StateId current_ = kDead;
  size_t kept_bytes_ = 0;   // of stacks and states
  int64_t steps_left_ = 0;  // of the call under way
};

}  // namespace hearth
