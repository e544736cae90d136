// KV pages and the sequences that share them (docs/formats/kv.md).
//
// A KvPool has the memory of a fixed number of pages, reserved and counted in the budget when it
// is made, so that a running sequence never fails for lack of memory it was promised. Others may
// use the memory of pages that no sequence uses (LentKvMemory). A KvSequence is a list of page
// references; forks share pages and copy the last, partly filled one before they write into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "kernels/kernel_table.h"
#include "tensor/kv_layout.h"

namespace hearth {

// Memory whose owner uses each page until the pool needs it, and charges it to the budget.
struct LentKvMemory {
  std::byte* pages = nullptr;  // page i begins at i * page_bytes()
  // The pool calls this before it uses a page: when it returns, the owner no longer touches the
  // page. Throws Error(kOutOfBudget) where the owner cannot give it up.
  std::function<void(int64_t page)> take;
  // The pool no longer uses a page. Must not throw.
  std::function<void(int64_t page)> give_back;
};

// Fixed set of pages with reference counts. Not thread-safe: one engine thread allocates.
// States of a page: (lent ->) free -> owned by one sequence -> shared by several -> free (-> lent).
class KvPool {
 public:
  // Free pages that a pool of lent memory keeps, so that a sequence that gives up its last page and
  // takes one again, token after token, moves nothing.
  static constexpr size_t kKeptPages = 2;

  // Room for `max_tokens` tokens rounded up to pages, charged to `budget` as "kv cache".
  // Throws Error(kOutOfBudget).
  KvPool(Budget& budget, const KvLayout& layout, int64_t max_tokens);
  // The same in `memory`, which must outlive the pool and is charged by its owner. All pages are
  // lent at first.
  KvPool(const KvLayout& layout, int64_t max_tokens, LentKvMemory memory);
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  int64_t num_pages() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()) + lent_pages(); }
  // Free pages whose memory its owner uses.
  int64_t lent_pages() const { return std::ssize(lent_); }

  // Bytes of all pages; of those that sequences use; of those that are lent.
  uint64_t bytes() const { return static_cast<uint64_t>(num_pages()) * layout_.page_bytes(); }
  uint64_t used_bytes() const {
    return static_cast<uint64_t>(num_pages() - free_pages()) * layout_.page_bytes();
  }
  uint64_t lent_bytes() const { return static_cast<uint64_t>(lent_pages()) * layout_.page_bytes(); }

  // Bytes that a pool for `max_tokens` is charged.
  static uint64_t ChargedBytes(const KvLayout& layout, int64_t max_tokens);

 private:
  friend class KvSequence;
  using PageId = int32_t;

  // Takes lent pages until free_ has `count`; so many must be free. Throws Error(kOutOfBudget).
  void Reserve(int64_t count);
  PageId Allocate();  // Error(kOutOfBudget) when none is in free_
  void LendFree() noexcept;
  void AddReference(PageId page) { ++references_[static_cast<size_t>(page)]; }
  void DropReference(PageId page) noexcept;
  bool IsShared(PageId page) const { return references_[static_cast<size_t>(page)] > 1; }
  std::byte* PageData(PageId page) {
    return pages_ + static_cast<size_t>(page) * layout_.page_bytes();
  }
  void MakeTables(int64_t max_tokens);

  KvLayout layout_;
  Buffer own_memory_;  // empty where it is lent
  LentKvMemory lent_memory_;
  std::byte* pages_ = nullptr;
  std::vector<int32_t> references_;
  std::vector<PageId> free_;
  std::vector<PageId> lent_;  // descending, so that the lowest is taken first
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
