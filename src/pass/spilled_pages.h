// What the attention of a pass needs of KV pages that lie on flash (M §4.1): which of them each
// layer reads, and where they are when they have come. A layer with a window reads what its window
// touches, and nothing older.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/model_spec.h"
#include "pass/pass_rows.h"

namespace hearth {

// One thread at a time. Calls come as Begin and, for each layer where has_any(), PagesOf and Done.
class SpilledPages {
 public:
  explicit SpilledPages(const ModelSpec& spec);

  // A pass of these rows begins, which must stay as they are until it ends: where some of its pages
  // lie on flash, those of the first layers are read. Nothing is read for layers that are
  // `elsewhere`; empty: there are none.
  void Begin(const PassRows& rows, const std::vector<bool>& elsewhere);
  bool has_any() const { return ring_ != nullptr; }

  // Per row the parts of its sequence's pages that are the layer's, as AttentionArgs::pages of
  // layer 0; waits for those that are read. Valid until Done. Throws Error(kIo), and tells the pool
  // whose page could not be read.
  std::span<const std::span<std::byte* const>> PagesOf(int64_t layer);
  void Done(int64_t layer) { ring_->Done(layer); }
  // Call this instead of both for a layer that is elsewhere. Does nothing if the pass reads
  // nothing.
  void Skip(int64_t layer);
  // Keeps reads going.
  void Poll() noexcept {
    if (ring_ != nullptr) ring_->Poll();
  }

 private:
  // Rows of one sequence.
  struct Group {
    KvSequence* sequence;
    size_t begin;  // of the rows
    size_t end;
    int64_t first_position;
  };

  void FindGroups(const PassRows& rows);
  void ListSlots(int64_t window, std::vector<int32_t>& slots) const;
  void BlameReader(int32_t slot) const;

  std::vector<int64_t> windows_;                 // that layers have; 0: none
  std::vector<size_t> window_of_layer_;          // indices of windows_
  std::vector<std::vector<int32_t>> slots_;      // by window: what its layers read, ascending
  std::vector<std::span<const int32_t>> lists_;  // by layer
  std::vector<Group> groups_;
  std::vector<std::byte*> parts_;                   // of all groups' pages
  std::vector<std::span<std::byte* const>> pages_;  // by row
  KvRing* ring_ = nullptr;                          // null: the pass reads nothing
};

}  // namespace hearth
