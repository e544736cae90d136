// KV pages and the sequences that share them (docs/formats/kv.md).
//
// A KvPool owns the memory of a fixed number of pages, reserved and counted in the budget when it
// is made, so that a running sequence never fails for lack of memory it was promised. A KvSequence
// is a list of page references; forks share pages and copy the last, partly filled one before
// they write into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "kernels/kernel_table.h"
#include "tensor/kv_layout.h"

namespace hearth {

// Fixed set of pages with reference counts. Not thread-safe: one engine thread allocates.
// States of a page: free -> owned by one sequence -> shared by several -> free.
class KvPool {
 public:
  // Room for `max_tokens` tokens rounded up to pages, charged to `budget` as "kv cache".
  // Throws Error(kOutOfBudget).
  KvPool(Budget& budget, const KvLayout& layout, int64_t max_tokens);
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  int64_t num_pages() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

  // Bytes that a pool for `max_tokens` is charged.
  static uint64_t ChargedBytes(const KvLayout& layout, int64_t max_tokens);

 private:
  friend class KvSequence;
  using PageId = int32_t;

  PageId Allocate();  // Error(kOutOfBudget) when none is free
  void AddReference(PageId page) { ++references_[static_cast<size_t>(page)]; }
  void DropReference(PageId page) noexcept;
  bool IsShared(PageId page) const { return references_[static_cast<size_t>(page)] > 1; }
  std::byte* PageData(PageId page) {
    return memory_.data() + static_cast<size_t>(page) * layout_.page_bytes();
  }

  KvLayout layout_;
  Buffer memory_;
  std::vector<int32_t> references_;
  std::vector<PageId> free_;
};

// The cached tokens of one sequence. Movable; drops its pages when destroyed. The pool must
// outlive it.
class KvSequence {
 public:
  explicit KvSequence(KvPool& pool) : pool_(&pool) {}
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;
  KvSequence(const KvSequence&) = delete;
  KvSequence& operator=(const KvSequence&) = delete;
  ~KvSequence() { Truncate(0); }

  int64_t length() const { return length_; }  // tokens
  const KvLayout& layout() const { return pool_->layout(); }

  // Free pages that Append(count) would take.
  int64_t PagesToAppend(int64_t count) const;

  // Makes room for `count` more tokens and counts them as present; their keys and values must be
  // written before they are read. A shared last page is copied first. Throws Error(kOutOfBudget)
  // when the pool has too few pages, leaving the sequence as it was.
  void Append(int64_t count);

  // Drops tokens from the end. new_length <= length().
  void Truncate(int64_t new_length) noexcept;

  // A sequence with the same tokens that shares this one's pages.
  KvSequence Fork() const;

  // Base address of every page, in token order; valid until the next call that is not const.
  std::span<std::byte* const> pages() const { return page_data_; }

  // Stores keys and values of token `position` for one layer: num_kv_heads * head_dim floats
  // each, in the page's codec as `encoders` make it. Touches no other token's bytes: distinct
  // (layer, position) pairs may be stored from several threads at once.
  void Store(int64_t layer, int64_t position, const float* keys, const float* values,
             const kernels::KvEncoders& encoders) noexcept;

 private:
  void PushPage(KvPool::PageId page);
  bool MustCopyLast() const;  // before it is written into

  KvPool* pool_;
  int64_t length_ = 0;
  std::vector<KvPool::PageId> page_ids_;
  std::vector<std::byte*> page_data_;
};

}  // namespace hearth
