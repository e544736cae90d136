#include "pass/spilled_pages.h"

#include <algorithm>

#include "base/error.h"

namespace hearth {

SpilledPages::SpilledPages(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    const int64_t window = layer.attention.sliding_window;
    const auto known = std::find(windows_.begin(), windows_.end(), window);
    window_of_layer_.push_back(static_cast<size_t>(known - windows_.begin()));
    if (known == windows_.end()) windows_.push_back(window);
  }
  slots_.resize(windows_.size());
  lists_.resize(window_of_layer_.size());
}

void SpilledPages::FindGroups(const PassRows& rows) {
  groups_.clear();
  for (size_t row = 0; row < rows.sequences.size(); ++row) {
    KvSequence* const sequence = rows.sequences[row];
    if (groups_.empty() || groups_.back().sequence != sequence) {
      groups_.push_back({sequence, row, row, rows.positions[row]});
    }
    groups_.back().end = row + 1;
  }
}

// Pages that several sequences share are read once.
void SpilledPages::ListSlots(int64_t window, std::vector<int32_t>& slots) const {
  slots.clear();
  for (const Group& group : groups_) {
    const KvPool& pool = group.sequence->pool();
    const int64_t oldest = window > 0 ? std::max<int64_t>(0, group.first_position + 1 - window) : 0;
    const std::span<const KvPageId> ids = group.sequence->page_ids();
    for (auto i = static_cast<size_t>(oldest / KvLayout::kPageTokens); i < ids.size(); ++i) {
      const KvPlace place = pool.PlaceOf(ids[i]);
      if (place.data == nullptr) slots.push_back(place.slot);
    }
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
}

void SpilledPages::Begin(const PassRows& rows, const std::vector<bool>& elsewhere) {
  ring_ = nullptr;
  KvFlash* const flash = rows.sequences.front()->pool().flash();
  if (flash == nullptr || flash->used_slots() == 0) return;
  FindGroups(rows);
  for (size_t i = 0; i < windows_.size(); ++i) ListSlots(windows_[i], slots_[i]);
  if (std::all_of(slots_.begin(), slots_.end(), [](const auto& list) { return list.empty(); })) {
    // Pages outside of all windows are not read, but their addresses are asked for.
    const bool all_there = std::all_of(groups_.begin(), groups_.end(), [](const Group& group) {
      const std::span<std::byte* const> pages = group.sequence->pages();
      return std::find(pages.begin(), pages.end(), nullptr) == pages.end();
    });
    if (all_there) return;
  }
  for (size_t layer = 0; layer < lists_.size(); ++layer) {
    lists_[layer] = {};
    if (elsewhere.empty() || !elsewhere[layer]) lists_[layer] = slots_[window_of_layer_[layer]];
  }
  flash->ring().Begin(lists_);
  ring_ = &flash->ring();
}

void SpilledPages::Skip(int64_t layer) {
  if (ring_ == nullptr) return;
  ring_->Wait(layer);
  ring_->Done(layer);
}

// The sequence that a page belongs to whose reading failed.
void SpilledPages::BlameReader(int32_t slot) const {
  for (const Group& group : groups_) {
    KvPool& pool = group.sequence->pool();
    for (const KvPageId page : group.sequence->page_ids()) {
      const KvPlace place = pool.PlaceOf(page);
      if (place.data == nullptr && place.slot == slot) return pool.NoteFailed(group.sequence);
    }
  }
}

std::span<const std::span<std::byte* const>> SpilledPages::PagesOf(int64_t layer) {
  try {
    ring_->Wait(layer);
  } catch (const Error&) {
    BlameReader(ring_->failed_slot());
    throw;
  }
  size_t count = 0;
  for (const Group& group : groups_) count += group.sequence->page_ids().size();
  parts_.resize(count);
  pages_.resize(groups_.back().end);
  std::byte** next = parts_.data();
  for (const Group& group : groups_) {
    const KvPool& pool = group.sequence->pool();
    const size_t offset = pool.layout().KeysOffset(layer, 0);
    const std::span<const KvPageId> ids = group.sequence->page_ids();
    for (size_t i = 0; i < ids.size(); ++i) {
      const KvPlace place = pool.PlaceOf(ids[i]);
      next[i] = place.data != nullptr ? place.data + offset : ring_->PartOf(layer, place.slot);
    }
    std::fill(pages_.begin() + static_cast<ptrdiff_t>(group.begin),
              pages_.begin() + static_cast<ptrdiff_t>(group.end),
              std::span<std::byte* const>(next, ids.size()));
    next += ids.size();
  }
  return pages_;
}

}  // namespace hearth
