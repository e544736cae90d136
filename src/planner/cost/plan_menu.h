// Choosing from a menu of settings whose speeds are tabulated, with Z3 (P2 §5.3: an SMT
// solver maximizes speed under the user's constraints). Tables and linear arithmetic over small
// integers: the solver's optimizer gives up on products of reals.
#pragma once

#include <cstdint>
#include <optional>
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
  int io_thread = 0;       // IoThread
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

// The best entry within the limits, as an index of the menu; nothing where none is within them.
// Throws Error(kInternal) where the solver fails.
std::optional<size_t> SolveMenu(const std::vector<MenuEntry>& menu, const MenuLimits& limits,
                                MenuGoal goal);
// The same by looking at every entry.
std::optional<size_t> SearchMenu(const std::vector<MenuEntry>& menu, const MenuLimits& limits,
                                 MenuGoal goal);

enum class MenuLimit : uint8_t { kThreads, kMemory, kSpeed };

// The limits that contradict each other, in the order of MenuLimit: no entry meets all of these,
// and without any one of them some entry meets the others. Empty where an entry meets all limits,
// or the menu is empty.
std::vector<MenuLimit> SolveConflict(const std::vector<MenuEntry>& menu, const MenuLimits& limits);
// The same by looking at every entry.
std::vector<MenuLimit> SearchConflict(const std::vector<MenuEntry>& menu, const MenuLimits& limits);

}  // namespace hearth
