// What one rendering has: memory, and what it may still use.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/limits.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

// Used by one thread.
class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits), steps_left_(limits.max_steps) {}

  Heap& heap() { return heap_; }

  Value String(Text text) { return heap_.String(std::move(text)); }
  Value Markup(Text text) { return heap_.String(std::move(text), /*is_markup=*/true); }
  Value OwnString(std::string_view ascii) { return heap_.String(Own(ascii)); }
  Value List(Values items) { return heap_.List(std::move(items)); }
  Value Tuple(Values items) { return heap_.Tuple(std::move(items)); }
  // A text of one character: the same value each time, for templates that look at every character
  // of a long text.
  Value Character(char32_t marked) {
    Value& value = characters_[marked];
    if (value.Is(Kind::kMissing)) value = String(Text(1, marked));
    return value;
  }
  // An undefined value; `message` is what using it fails with, and kept once.
  Value Undefined(std::string message) {
    const auto [place, is_new] = messages_.insert(std::move(message));
    if (is_new) heap_.Charge(sizeof(std::string) + place->size());
    return Value(heap_.New<UndefinedObject>(*place));
  }

  // Counts work: an evaluated node, an item visited, some characters written.
  void Spend(uint64_t steps) {
    if (steps > steps_left_) throw LimitExceeded("the template takes too many steps");
    steps_left_ -= steps;
  }
  // Before `characters` (which may be huge) are made, or as many items.
  void CheckSize(Int characters) {
    if (characters > static_cast<Int>(limits_.max_bytes / sizeof(char32_t))) {
      throw LimitExceeded("the template needs too much memory");
    }
    if (characters > 0) Spend(static_cast<uint64_t>(characters) / 16);
  }

  const Limits& limits() const { return limits_; }

  int line = 0;                            // of the node that is evaluated
  int depth = 0;                           // of evaluation; see DepthScope
  std::vector<const void*> being_written;  // lists, tuples and dicts that repr is inside of

 private:
  const Limits limits_;
  Heap heap_;
  std::unordered_map<char32_t, Value> characters_;
  std::unordered_set<std::string> messages_;
  uint64_t steps_left_;
};

// One level of recursion, over a tree or over values.
class DepthScope {
 public:
  explicit DepthScope(Runtime& runtime) : runtime_(runtime) {
    if (++runtime_.depth > runtime_.limits().max_depth) {
      --runtime_.depth;
      throw LimitExceeded("the template calls itself, or nests values, too deeply");
    }
  }
  ~DepthScope() { --runtime_.depth; }
  DepthScope(const DepthScope&) = delete;
  DepthScope& operator=(const DepthScope&) = delete;

 private:
  Runtime& runtime_;
};

}  // namespace hearth::jinja
