// KV pages and slots of a neuron cache in one memory: the last slots of the cache lie over the
// pages. A page that is needed takes the slots that it touches out of the cache, whose policy
// chooses which keys go; those that stay move to other slots. No byte is given to or asked of the
// system, and what is computed does not depend on where a bundle lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cache/neuron_cache.h"
#include "plan/lent_pages.h"

namespace hearth {

// One thread at a time, between passes.
class LentSlots {
 public:
  // Of `cache`, which outlives this, the slots from `first_slot` on lie over the pages. Pages begin
  // at the next multiple of LentPages::kAlignment; all are lent at first. before_take: when it
  // returns nothing may read into the cache's slots, nor hold on to where keys lie.
  LentSlots(NeuronCache& cache, const LentPages& pages, int64_t first_slot,
            std::function<void()> before_take);

  std::byte* pages() const { return pages_; }

  // Takes the memory of a page from the cache. Throws Error(kOutOfBudget), with nothing changed,
  // where a slot over it is in use.
  void Take(int64_t page);
  // Gives it to the cache again.
  void Return(int64_t page) noexcept;

 private:
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
  };

  Run SlotsOver(int64_t page) const;
  // Of them, those that no other page has.
  Run OwnSlots(int64_t page) const;

  NeuronCache& cache_;
  const std::function<void()> before_take_;
  const uint64_t page_bytes_;
  const int64_t first_slot_;
  std::byte* first_ = nullptr;  // of the first slot over pages
  std::byte* pages_ = nullptr;
  std::vector<int32_t> num_taken_;  // by slot from first_slot_ on: pages that have it
};

}  // namespace hearth
