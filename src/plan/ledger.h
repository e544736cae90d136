// What memory is for, by name: as budgets keep it and plans promise it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hearth {

// The bytes of all entries together.
inline uint64_t LedgerSum(const std::map<std::string, uint64_t>& ledger) {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : ledger) sum += bytes;
  return sum;
}

}  // namespace hearth
