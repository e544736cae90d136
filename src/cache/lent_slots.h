// Lends the memory of KV pages to a neuron cache: the cache's last slots lie over the pages. A
// context that needs a page withdraws the slots that the page touches. The policy chooses which
// keys leave the cache; the others move to slots elsewhere. The system neither gives nor gets back
// any memory, and results do not depend on where a bundle lies (docs/decisions/0016-one-arena.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cache/neuron_cache.h"
#include "plan/lent_pages.h"

namespace hearth {

// Calls come from one thread at a time, between passes.
class LentSlots {
 public:
  // Slots from `first_slot` on lie over the pages, which begin at the next multiple of
  // LentPages::kAlignment and are all lent at first. `cache` must outlive this. Take calls
  // before_take first: when it returns, no read may be on its way into a slot of the cache, and
  // nobody may remember where keys lie.
  LentSlots(NeuronCache& cache, const LentPages& pages, int64_t first_slot,
            std::function<void()> before_take);

  std::byte* pages() const { return pages_; }

  // Takes a page's memory from the cache. Throws Error(kOutOfBudget), with nothing changed, where a
  // slot over it is in use. Bytes of the page are then whatever the cache left.
  void Take(int64_t page);
  // Gives a taken page's memory back to the cache.
  void Return(int64_t page) noexcept;

 private:
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
  };

  // The slots that a page touches, counted from first_slot_.
  Run SlotsOver(int64_t page) const;
  // The same without slots that a taken page touches.
  Run OwnSlots(int64_t page) const;

  NeuronCache& cache_;
  const std::function<void()> before_take_;
  const uint64_t page_bytes_;
  const int64_t first_slot_;
  std::byte* first_ = nullptr;  // bytes of first_slot_
  std::byte* pages_ = nullptr;
  std::vector<int32_t> num_taken_;  // by slot from first_slot_: taken pages that touch it
};

}  // namespace hearth
