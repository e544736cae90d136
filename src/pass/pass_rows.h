// The rows of a pass: tokens of its sequences, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pass/pass_shape.h"

namespace hearth {

struct PassRows {
  PassKind kind = PassKind::kPrefill;
  std::vector<TokenId> tokens;
  std::vector<int64_t> positions;
  std::vector<KvSequence*> sequences;
  std::vector<std::span<std::byte* const>> pages;  // null where they lie on flash

  int64_t count() const { return static_cast<int64_t>(tokens.size()); }

  // Makes room in the caches of the sequences, for all or, with Error(kOutOfBudget), for none.
  void Place(const PassShape& shape);
};

// Takes the tokens of a pass that failed out of their caches again.
void RemoveRows(const PassShape& shape) noexcept;

}  // namespace hearth
