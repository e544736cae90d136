#include "text/grammar/grammar_matcher.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace hearth {
namespace {

// What is remembered between calls, and what one call may need beside it.
constexpr size_t kMostKeptBytes = size_t{1} << 20;
constexpr size_t kMostCallBytes = size_t{8} << 20;
// A thread stands in a state, or stack, and in the key that finds it.
constexpr size_t kThreadBytes = 16;
constexpr size_t kStateBytes = 240;
// Positions that one call looks at, some tens of milliseconds'. Those of a schema with hundreds of
// properties are some ten thousand, once per state.
constexpr int64_t kMaxStepsOfCall = 1'000'000;
constexpr int64_t kStepsOfTable = 16;  // what making a state's table is worth
constexpr size_t kNumBytes = 256;
constexpr uint32_t kTextEnd = UINT32_MAX;  // the position that the first rule returns to
constexpr char kControlMark = '\xFF';

}  // namespace

std::string ControlTokenBytes(TokenId id) {
  std::string bytes(1, kControlMark);
  for (const int shift : {16, 8, 0}) bytes += static_cast<char>(id >> shift);
  return bytes;
}

SortedVocabulary::SortedVocabulary(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (tokenizer.IsEndOfGeneration(id)) {
      ends_.push_back(id);
      continue;
    }
    const TokenType type = tokenizer.type(id);
    if (type == TokenType::kUnknown || type == TokenType::kUnused) continue;
    if (type == TokenType::kControl) {
      constexpr size_t kMost = size_t{1} << 24;  // that have three bytes for their number
      if (i >= kMost) continue;
      entries_.push_back({control_bytes_.emplace_back(ControlTokenBytes(id)), id, 0});
      continue;
    }
    // A stray byte must not be taken for the beginning of a control token.
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (!bytes.empty() && bytes.find(kControlMark) == bytes.npos)
      entries_.push_back({bytes, id, 0});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });
  for (size_t i = 1; i < entries_.size(); ++i) {
    const std::string_view before = entries_[i - 1].bytes;
    const std::string_view bytes = entries_[i].bytes;
    const size_t shorter = std::min(before.size(), bytes.size());
    entries_[i].common = static_cast<size_t>(
        std::mismatch(before.begin(), before.begin() + static_cast<ptrdiff_t>(shorter),
                      bytes.begin())
            .first -
        before.begin());
  }
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                               std::shared_ptr<const SortedVocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)) {
  Reset();
  BeginCall();
  Closure closure;
  closure.calls[grammar_->order(grammar_->start())] = {grammar_->start(), {{kTextEnd, 0}}, {}};
  closure.may_end = grammar_->may_be_empty(grammar_->start());
  current_ = StateOf(std::move(closure));
}

void GrammarMatcher::BeginCall() { steps_left_ = kMaxStepsOfCall; }

void GrammarMatcher::CountSteps(size_t steps) {
  steps_left_ -= static_cast<int64_t>(steps);
  if (steps_left_ >= 0) return;
  throw Error(ErrorCode::kUnsupported, "grammar", "it has too many ways to read a text");
}

// What is kept, or will be.
void GrammarMatcher::CountBytes(size_t bytes) {
  kept_bytes_ += bytes;
  if (kept_bytes_ < kMostKeptBytes + kMostCallBytes) return;
  throw Error(ErrorCode::kUnsupported, "grammar", "it has too many ways to read a text");
}

void GrammarMatcher::Reset() {
  stacks_.clear();
  stack_ids_.clear();
  states_.assign(1, State());  // kDead
  state_ids_.clear();
  kept_bytes_ = 0;
}

uint32_t GrammarMatcher::StackOf(Threads returns) {
  const auto [place, is_new] = stack_ids_.emplace(returns, static_cast<uint32_t>(stacks_.size()));
  if (is_new) {
    CountBytes(kStateBytes + returns.size() * kThreadBytes);
    stacks_.push_back(std::move(returns));
  }
  return place->second;
}

uint32_t GrammarMatcher::StackOf(Callers callers) {
  Threads& returns = callers.returns;
  std::sort(callers.tails.begin(), callers.tails.end());
  callers.tails.erase(std::unique(callers.tails.begin(), callers.tails.end()), callers.tails.end());
  // A rule at the end of another returns to where that one does: lists stay flat.
  if (returns.empty() && callers.tails.size() == 1) return callers.tails[0];
  for (const uint32_t stack : callers.tails) {
    CountSteps(stacks_[stack].size());
    returns.insert(returns.end(), stacks_[stack].begin(), stacks_[stack].end());
  }
  std::sort(returns.begin(), returns.end());
  returns.erase(std::unique(returns.begin(), returns.end()), returns.end());
  return StackOf(std::move(returns));
}

Grammar::Symbol::Kind GrammarMatcher::Follow(Thread thread, Closure& closure) {
  using Kind = Grammar::Symbol::Kind;
  for (;; ++thread.position) {
    CountSteps(1);
    const Grammar::Symbol symbol = grammar_->symbol(thread.position);
    if (symbol.kind == Kind::kBytes) closure.threads.push_back(thread);
    if (symbol.kind != Kind::kRule) return symbol.kind;
    Callers& callers = closure.calls[grammar_->order(symbol.index)];
    callers.rule = symbol.index;
    if (grammar_->symbol(thread.position + 1).kind == Kind::kEnd) {
      callers.tails.push_back(thread.stack);
    } else {
      callers.returns.push_back({thread.position + 1, thread.stack});
    }
    if (!grammar_->may_be_empty(symbol.index)) return symbol.kind;
  }
}

// Goes on after the calls of rules that have ended.
void GrammarMatcher::FollowStarts(Threads starts, Closure& closure) {
  std::set<Thread> seen;
  while (!starts.empty()) {
    const Thread thread = starts.back();
    starts.pop_back();
    if (thread.position == kTextEnd) {
      closure.may_end = true;
    } else if (seen.insert(thread).second &&
               Follow(thread, closure) == Grammar::Symbol::Kind::kEnd) {
      const Threads& returns = stacks_[thread.stack];
      CountSteps(returns.size());
      starts.insert(starts.end(), returns.begin(), returns.end());
    }
  }
}

// Follows the rules that are called until every thread stands before a byte. Rules come after all
// that may call them here, so that each is entered once, for all its callers together: however many
// ways there are to read a text, what follows is looked at once. A rule that ends here is empty:
// its callers have gone on without it.
GrammarMatcher::StateId GrammarMatcher::StateOf(Closure closure) {
  while (!closure.calls.empty()) {
    auto first = closure.calls.extract(closure.calls.begin());
    const uint32_t rule = first.mapped().rule;
    const uint32_t stack = StackOf(std::move(first.mapped()));
    grammar_->ForEachAlternative(rule, [&](uint32_t start) { Follow({start, stack}, closure); });
  }
  Threads& threads = closure.threads;
  if (threads.empty() && !closure.may_end) return kDead;
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  return Keep({.threads = std::move(threads),
               .may_end = closure.may_end,
               .classes = {},
               .followers = {},
               .mask = {}});
}

GrammarMatcher::StateId GrammarMatcher::Keep(State state) {
  const auto [place, is_new] = state_ids_.emplace(std::pair(state.threads, state.may_end),
                                                  static_cast<StateId>(states_.size()));
  if (is_new) {
    CountBytes(kStateBytes + state.threads.size() * kThreadBytes);
    states_.push_back(std::move(state));
  }
  return place->second;
}

GrammarMatcher::StateId GrammarMatcher::Next(StateId state, uint8_t byte) {
  if (states_[state].classes.empty()) {
    CountSteps(kStepsOfTable);
    CountBytes(kNumBytes);
    states_[state].classes.assign(kNumBytes, 0);
  }
  if (const uint8_t known = states_[state].classes[byte]; known != 0) {
    return states_[state].followers[known - 1];
  }
  CountSteps(states_[state].threads.size());
  Threads starts;
  ByteSet alike = ByteSet().set();  // bytes that lead to the same state
  for (const Thread& thread : states_[state].threads) {
    const ByteSet& bytes = grammar_->bytes(grammar_->symbol(thread.position).index);
    alike &= bytes.test(byte) ? bytes : ~bytes;
    if (bytes.test(byte)) starts.push_back({thread.position + 1, thread.stack});
  }
  Closure closure;
  FollowStarts(std::move(starts), closure);
  const StateId next = StateOf(std::move(closure));
  std::vector<StateId>& followers = states_[state].followers;
  auto place = std::find(followers.begin(), followers.end(), next);
  if (place == followers.end()) {
    if (followers.size() == kNumBytes - 1) return next;  // remembered for all but one
    place = followers.insert(place, next);
  }
  const auto number = static_cast<uint8_t>(place - followers.begin() + 1);
  for (size_t other = 0; other < kNumBytes; ++other) {
    if (alike.test(other)) states_[state].classes[other] = number;
  }
  return next;
}

GrammarMatcher::StateId GrammarMatcher::NextOf(StateId state, std::string_view bytes) {
  for (const char byte : bytes) {
    if (state == kDead) break;
    state = Next(state, static_cast<uint8_t>(byte));
  }
  return state;
}

void GrammarMatcher::ComputeMask(StateId state) {
  const size_t words = (vocabulary_->tokenizer().vocab_size() + 63) / 64;
  TokenMask mask(words, 0);
  const auto allow = [&](TokenId id) {
    mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
  };
  // The states along the bytes of the entry before; the last may be dead.
  std::vector<StateId> path = {state};
  for (const SortedVocabulary::Entry& entry : vocabulary_->entries()) {
    path.resize(std::min(path.size(), entry.common + 1));
    while (path.back() != kDead && path.size() <= entry.bytes.size()) {
      path.push_back(Next(path.back(), static_cast<uint8_t>(entry.bytes[path.size() - 1])));
    }
    if (path.back() != kDead && path.size() == entry.bytes.size() + 1) allow(entry.id);
  }
  if (states_[state].may_end) {
    for (const TokenId id : vocabulary_->ends()) allow(id);
  }
  CountBytes(words * sizeof(uint64_t));
  states_[state].mask = std::move(mask);
}

const TokenMask& GrammarMatcher::AllowedTokens() {
  BeginCall();
  ForgetIfLarge();
  if (states_[current_].mask.empty()) {
    ComputeMask(current_);
    ForgetIfLarge();
  }
  return states_[current_].mask;
}

bool GrammarMatcher::AdvanceBytes(std::string_view bytes) {
  BeginCall();
  ForgetIfLarge();
  const StateId next = NextOf(current_, bytes);
  if (next == kDead) return false;
  current_ = next;
  return true;
}

bool GrammarMatcher::Advance(TokenId id) {
  const Tokenizer& tokenizer = vocabulary_->tokenizer();
  if (id < 0 || static_cast<size_t>(id) >= tokenizer.vocab_size()) return false;
  if (tokenizer.IsEndOfGeneration(id)) return IsFinished();
  if (tokenizer.type(id) == TokenType::kControl) return AdvanceBytes(ControlTokenBytes(id));
  const std::string_view bytes = tokenizer.TokenBytes(id);
  return !bytes.empty() && bytes.find(kControlMark) == bytes.npos && AdvanceBytes(bytes);
}

// Starts the memory anew with the current state, so that long answers do not fill it.
void GrammarMatcher::ForgetIfLarge() {
  if (kept_bytes_ < kMostKeptBytes) return;
  State state = {.threads = std::move(states_[current_].threads),
                 .may_end = states_[current_].may_end,
                 .classes = {},
                 .followers = {},
                 .mask = std::move(states_[current_].mask)};
  const std::vector<Threads> old = std::move(stacks_);
  // Stacks are made of those before them.
  std::vector<bool> is_used(old.size(), false);
  for (const Thread& thread : state.threads) is_used[thread.stack] = true;
  for (size_t id = old.size(); id-- > 0;) {
    if (!is_used[id]) continue;
    for (const Thread& thread : old[id]) {
      if (thread.position != kTextEnd) is_used[thread.stack] = true;
    }
  }
  Reset();
  std::vector<uint32_t> ids(old.size(), 0);
  const auto renamed = [&](Threads threads) {
    for (Thread& thread : threads) {
      if (thread.position != kTextEnd) thread.stack = ids[thread.stack];
    }
    return threads;
  };
  for (size_t id = 0; id < old.size(); ++id) {
    if (is_used[id]) ids[id] = StackOf(renamed(old[id]));
  }
  state.threads = renamed(std::move(state.threads));
  std::sort(state.threads.begin(), state.threads.end());
  CountBytes(state.mask.size() * sizeof(uint64_t));
  current_ = Keep(std::move(state));
}

}  // namespace hearth
