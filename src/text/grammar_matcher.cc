#include "text/grammar_matcher.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kMaxStates = 500;
constexpr size_t kMaxThreads = 200'000;
// Positions that one call looks at, some tenths of a second's. Those of a schema with hundreds of
// properties are some ten thousand, once per state.
constexpr int64_t kMaxStepsOfCall = 1'000'000;
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
  std::vector<Thread> starts;
  for (const uint32_t start : grammar_->alternatives(grammar_->start())) {
    starts.push_back({start, kNoStack});
  }
  current_ = StateOf(starts);
}

void GrammarMatcher::BeginCall() { steps_left_ = kMaxStepsOfCall; }

void GrammarMatcher::Reset() {
  threads_.assign(1, Thread());  // kNoStack
  thread_ids_.clear();
  states_.assign(1, State());  // kDead
  state_ids_.clear();
}

uint32_t GrammarMatcher::ThreadId(Thread thread) {
  const auto [place, is_new] = thread_ids_.emplace(std::pair(thread.position, thread.stack),
                                                   static_cast<uint32_t>(threads_.size()));
  if (is_new) threads_.push_back(thread);
  return place->second;
}

// Follows rules and ends of rules until every thread stands before a byte.
GrammarMatcher::StateId GrammarMatcher::StateOf(const std::vector<Thread>& starts) {
  using Kind = Grammar::Symbol::Kind;
  std::vector<Thread> open = starts;
  std::set<std::pair<uint32_t, uint32_t>> seen;
  std::vector<uint32_t> threads;
  bool may_end = false;
  while (!open.empty()) {
    const Thread thread = open.back();
    open.pop_back();
    if (--steps_left_ < 0) {
      throw Error(ErrorCode::kUnsupported, "grammar", "it has too many ways to read a text");
    }
    if (!seen.emplace(thread.position, thread.stack).second) continue;
    const Grammar::Symbol& symbol = grammar_->symbol(thread.position);
    if (symbol.kind == Kind::kBytes) {
      threads.push_back(ThreadId(thread));
    } else if (symbol.kind == Kind::kEnd) {
      if (thread.stack == kNoStack) {
        may_end = true;
      } else {
        open.push_back(threads_[thread.stack]);
      }
    } else {
      // A rule at the end of another returns to where that one does: lists stay flat.
      const bool is_last = grammar_->symbol(thread.position + 1).kind == Kind::kEnd;
      const uint32_t stack = is_last ? thread.stack : ThreadId({thread.position + 1, thread.stack});
      for (const uint32_t start : grammar_->alternatives(symbol.index)) {
        open.push_back({start, stack});
      }
    }
  }
  if (threads.empty() && !may_end) return kDead;
  std::sort(threads.begin(), threads.end());
  const auto [place, is_new] =
      state_ids_.emplace(std::pair(threads, may_end), static_cast<StateId>(states_.size()));
  if (is_new) {
    states_.emplace_back();
    states_.back().threads = std::move(threads);
    states_.back().may_end = may_end;
  }
  return place->second;
}

GrammarMatcher::StateId GrammarMatcher::Next(StateId state, uint8_t byte) {
  const auto known = states_[state].next.find(byte);
  if (known != states_[state].next.end()) return known->second;
  std::vector<Thread> starts;
  for (const uint32_t id : states_[state].threads) {
    const Thread thread = threads_[id];
    if (grammar_->bytes(grammar_->symbol(thread.position).index).test(byte)) {
      starts.push_back({thread.position + 1, thread.stack});
    }
  }
  const StateId next = starts.empty() ? kDead : StateOf(starts);
  states_[state].next[byte] = next;
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
  states_[state].mask = std::move(mask);
}

const TokenMask& GrammarMatcher::AllowedTokens() {
  BeginCall();
  ForgetIfLarge();
  if (states_[current_].mask.empty()) ComputeMask(current_);
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
  if (states_.size() < kMaxStates && threads_.size() < kMaxThreads) return;
  const State state = std::move(states_[current_]);
  const std::vector<Thread> old = std::move(threads_);
  Reset();
  std::vector<uint32_t> threads;
  for (uint32_t id : state.threads) {
    std::vector<uint32_t> positions;
    for (; id != kNoStack; id = old[id].stack) positions.push_back(old[id].position);
    uint32_t stack = kNoStack;
    for (size_t i = positions.size(); i-- > 0;) stack = ThreadId({positions[i], stack});
    threads.push_back(stack);
  }
  std::sort(threads.begin(), threads.end());
  states_.emplace_back();
  states_.back().threads = threads;
  states_.back().may_end = state.may_end;
  current_ = static_cast<StateId>(states_.size() - 1);
  state_ids_.emplace(std::pair(std::move(threads), state.may_end), current_);
}

}  // namespace hearth
