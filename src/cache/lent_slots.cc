#include "cache/lent_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"

namespace hearth {

LentSlots::LentSlots(NeuronCache& cache, const LentPages& pages, int64_t first_slot,
                     std::function<void()> before_take)
    : cache_(cache),
      before_take_(std::move(before_take)),
      page_bytes_(pages.page_bytes),
      first_slot_(first_slot),
      num_taken_(static_cast<size_t>(std::max<int64_t>(cache.num_slots() - first_slot, 0))) {
  if (pages.count == 0) return;
  first_ = cache.SlotBytes(0).data() + static_cast<size_t>(first_slot) * cache.SlotBytes(0).size();
  const auto address = reinterpret_cast<uintptr_t>(first_);
  pages_ = first_ + (RoundUp<uintptr_t>(address, LentPages::kAlignment) - address);
}

// The cache may have fewer slots than there is memory.
LentSlots::Run LentSlots::SlotsOver(int64_t page) const {
  const size_t slot_bytes = cache_.options().slot_bytes;
  const size_t begin =
      static_cast<size_t>(pages_ - first_) + static_cast<size_t>(page) * page_bytes_;
  const int64_t end = static_cast<int64_t>(DivideUp(begin + page_bytes_, slot_bytes));
  const auto most = std::ssize(num_taken_);
  return {std::min(static_cast<int64_t>(begin / slot_bytes), most), std::min(end, most)};
}

// Only the slots at both ends may reach into other pages.
LentSlots::Run LentSlots::OwnSlots(int64_t page) const {
  Run run = SlotsOver(page);
  const auto is_taken = [&](int64_t slot) { return num_taken_[static_cast<size_t>(slot)] > 0; };
  while (run.begin < run.end && is_taken(run.begin)) ++run.begin;
  while (run.begin < run.end && is_taken(run.end - 1)) --run.end;
  return run;
}

void LentSlots::Take(int64_t page) {
  before_take_();
  const Run own = OwnSlots(page);
  const auto move = [this](int32_t from, int32_t to) {
    const std::span<const std::byte> bytes = cache_.SlotBytes(from);
    std::memcpy(cache_.SlotBytes(to).data(), bytes.data(), bytes.size());
  };
  if (own.begin < own.end &&
      !cache_.Withdraw(static_cast<int32_t>(first_slot_ + own.begin), own.end - own.begin, move)) {
    throw Error(ErrorCode::kOutOfBudget, "kv cache",
                "the context cannot grow: the memory of its next page is in use; try again, with "
                "fewer requests at once");
  }
  const Run all = SlotsOver(page);
  for (int64_t slot = all.begin; slot < all.end; ++slot) ++num_taken_[static_cast<size_t>(slot)];
}

void LentSlots::Return(int64_t page) noexcept {
  const Run all = SlotsOver(page);
  for (int64_t slot = all.begin; slot < all.end; ++slot) --num_taken_[static_cast<size_t>(slot)];
  const Run own = OwnSlots(page);
  if (own.begin < own.end) {
    cache_.Restore(static_cast<int32_t>(first_slot_ + own.begin), own.end - own.begin);
  }
}

}  // namespace hearth
