// The names of one frame, while the resolver collects them.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "text/jinja/syntax/ast.h"
#include "text/jinja/values/failure.h"

namespace hearth::jinja {

inline constexpr size_t kMaxNames = 1000;  // of one frame

struct NameState {
  bool referenced = false;
  bool stored = false;
  bool loaded_at_start = false;  // `start` counts
  Scope::Start start = Scope::Start::kMissing;
};

class Symbols {
 public:
  Symbols(Symbols* parent, Scope& scope) : parent_(parent), scope_(scope) {}

  void Load(const Text& name) {
    if (!Knows(name)) Define(name, Scope::Start::kContext);
  }

  void Store(const Text& name) {
    const size_t index = IndexOf(name);
    states_[index].stored = true;
    if (states_[index].referenced) return;
    const bool outer = parent_ != nullptr && parent_->Knows(name);
    Define(name, outer ? Scope::Start::kOuter : Scope::Start::kMissing);
  }

  int Parameter(const Text& name) {
    states_[IndexOf(name)].stored = true;
    Define(name, Scope::Start::kParameter);
    return static_cast<int>(IndexOf(name));
  }

  bool Knows(const Text& name) const {
    for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->parent_) {
      const int index = symbols->FindIndex(name);
      if (index >= 0 && symbols->states_[static_cast<size_t>(index)].referenced) return true;
    }
    return false;
  }

  // Where the name lies, seen from this frame. It is known.
  SlotRef Find(const Text& name) const {
    SlotRef slot;
    for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->parent_) {
      const int index = symbols->FindIndex(name);
      if (index >= 0 && symbols->states_[static_cast<size_t>(index)].referenced) {
        slot.index = index;
        return slot;
      }
      ++slot.hops;
    }
    throw Failure("the name '" + EncodeUtf8(name) + "' belongs to no frame here");
  }

  // The names after each branch of an "if" began with those before it.
  std::vector<NameState> TakeStates() { return std::exchange(states_, before_branch_.back()); }
  void BeginBranches() { before_branch_.push_back(states_); }
  void EndBranches(const std::vector<std::vector<NameState>>& branches) {
    const std::vector<NameState> before = std::move(before_branch_.back());
    before_branch_.pop_back();
    for (const std::vector<NameState>& branch : branches) {
      states_.resize(std::max(states_.size(), branch.size()));
      for (size_t i = 0; i < branch.size(); ++i) Merge(states_[i], branch[i]);
    }
    for (size_t i = 0; i < states_.size(); ++i) {
      const bool was_stored = i < before.size() && before[i].stored;
      if (was_stored || !states_[i].stored) continue;
      // Set in a branch only: where that is not taken, it is what it was outside.
      const bool outer = parent_ != nullptr && parent_->Knows(scope_.slots[i].name);
      states_[i].start = outer ? Scope::Start::kOuter : Scope::Start::kContext;
      states_[i].loaded_at_start = true;
    }
  }

  // Writes what was found out into the scope.
  void Finish() {
    states_.resize(scope_.slots.size());
    for (size_t i = 0; i < states_.size(); ++i) {
      Scope::Slot& slot = scope_.slots[i];
      slot.start = states_[i].loaded_at_start ? states_[i].start : Scope::Start::kMissing;
      if (slot.start != Scope::Start::kOuter) continue;
      slot.outer = parent_->Find(slot.name);
      ++slot.outer.hops;
    }
  }

 private:
  static void Merge(NameState& into, const NameState& branch) {
    into.referenced = into.referenced || branch.referenced;
    into.stored = into.stored || branch.stored;
    if (branch.loaded_at_start) into.start = branch.start;
    into.loaded_at_start = into.loaded_at_start || branch.loaded_at_start;
  }

  int FindIndex(const Text& name) const {
    const size_t count = std::min(states_.size(), scope_.slots.size());
    for (size_t i = 0; i < count; ++i) {
      if (scope_.slots[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }

  size_t IndexOf(const Text& name) {
    size_t index = 0;
    while (index < scope_.slots.size() && scope_.slots[index].name != name) ++index;
    if (index == scope_.slots.size()) {
      if (index == kMaxNames) throw LimitExceeded("the template has too many names");
      scope_.slots.push_back({name, Scope::Start::kMissing, {}});
    }
    if (states_.size() <= index) states_.resize(scope_.slots.size());
    return index;
  }

  void Define(const Text& name, Scope::Start start) {
    NameState& state = states_[IndexOf(name)];
    state.referenced = true;
    state.start = start;
    state.loaded_at_start = true;
  }

  Symbols* const parent_;
  Scope& scope_;  // its slots have all names of all branches
  std::vector<NameState> states_;
  std::vector<std::vector<NameState>> before_branch_;
};

}  // namespace hearth::jinja
