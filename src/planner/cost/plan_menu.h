// Choosing from a menu of settings whose speeds are tabulated, with Z3 (P2 §5.3: an SMT
// solver maximizes speed under the user's constraints). Tables and linear arithmetic over small
// integers: the solver's optimizer gives up on products of reals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hearth {

// One way to run: places on the axes of the menu, and what it costs.
struct MenuEntry {
  int threads = 1;
  int strategy = 0;        // IoStrategy
  int split = 0;           // of memory for neurons: the number of a pinned share
  int budget = 0;          // the number of a memory limit
  uint64_t token_us = 0;   // more than 0
  uint64_t prompt_us = 0;  // of a token of a prompt
  uint64_t bytes = 0;      // of memory
};

struct MenuLimits {
  std::optional<int> most_threads;
  std::optional<uint64_t> most_bytes;
  std::optional<uint64_t> most_token_us;  // the least speed
};

enum class MenuGoal : uint8_t {
  // And of those within 1% of it, which no measurement tells apart, the one with the fastest
  // prompts, and of those the fastest, with the least memory.
  kFastest,
  kLeastMemory,  // and of those the fastest, and of those the fastest prompts
};

struct MenuChoice {
  std::optional<size_t> entry;  // nothing: no entry is within the limits
  // Then, of "threads", "memory" and "speed", those that contradict each other.
  std::vector<std::string> conflict;
};

MenuChoice SolveMenu(const std::vector<MenuEntry>& menu, const MenuLimits& limits, MenuGoal goal);
// The same by looking at every entry, without naming conflicts.
MenuChoice SearchMenu(const std::vector<MenuEntry>& menu, const MenuLimits& limits, MenuGoal goal);

}  // namespace hearth
