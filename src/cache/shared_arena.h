// Memory that slots of a cache and KV pages share (plan/lent_pages.h), charged under both names. It
// ends with a huge page, as its last bytes are those that are read into most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/budget.h"
#include "base/buffer.h"

namespace hearth {

class SharedArena {
 public:
  // Takes `bytes`, zeroed, and charges Buffer::ChargedBytes(bytes) to `budget`: kv_bytes, at most
  // all, as "kv cache" and the rest as `name`. Throws Error(kOutOfBudget).
  SharedArena(Budget& budget, std::string_view name, size_t bytes, uint64_t kv_bytes)
      : slots_(budget.Charge(name, Buffer::ChargedBytes(bytes) - kv_bytes)) {
    if (kv_bytes > 0) pages_ = budget.Charge("kv cache", kv_bytes);
    memory_ = Buffer(counted_, name, bytes, HugeEnd::kLast);
  }
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  std::byte* data() { return memory_.data(); }
  const std::byte* data() const { return memory_.data(); }
  size_t size_bytes() const { return memory_.size_bytes(); }

 private:
  BudgetCharge slots_, pages_;
  Budget counted_;  // for memory_, which the two charges already count
  Buffer memory_;
};

}  // namespace hearth
