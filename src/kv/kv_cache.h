// KV pages and the sequences that share them (docs/formats/kv.md).
//
// A KvPool has the memory of a fixed number of pages, reserved and counted in the budget when it
// is made, so that a running sequence never fails for lack of memory it was promised. Others may
// use the memory of pages that no sequence uses (LentKvMemory). A KvSequence is a list of page
// references; forks share pages and copy the last, partly filled one before they write into it.
//
// A pool with a KvFlash has more pages than frames. Where a page needs a frame and none is free,
// the coldest page leaves its own for the file; attention reads it from there, layer by layer
// (pass/spilled_pages.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "kernels/kernel_table.h"
#include "kv/kv_flash.h"
#include "kv/kv_frames.h"
#include "kv/kv_uses.h"
#include "tensor/kv_layout.h"

namespace hearth {

class KvSequence;

// Where a page lies: in memory, or in a slot of the file.
struct KvPlace {
  std::byte* data = nullptr;
  int32_t slot = -1;
};

class KvSequence;

// Fixed set of pages with reference counts. Not thread-safe, but for CopyOut and CopyIn: one engine
// thread allocates.
// States of a page: free -> owned by one sequence -> shared by several -> free. One that is not
// free has a frame or, where there is a file, a slot there.
class KvPool {
 public:
  // Room for `max_tokens` tokens rounded up to pages. All have memory but for those that `flash`
  // has slots for; one slot more lets pages change places. What is in memory is charged to `budget`
  // as "kv cache". Throws Error(kOutOfBudget).
  KvPool(Budget& budget, const KvLayout& layout, int64_t max_tokens,
         std::unique_ptr<KvFlash> flash = nullptr);
  // The same in `memory`, which must outlive the pool and is charged by its owner. All frames are
  // lent at first.
  KvPool(const KvLayout& layout, int64_t max_tokens, LentKvMemory memory,
         std::unique_ptr<KvFlash> flash = nullptr);
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  int64_t num_pages() const { return std::ssize(references_); }
  int64_t free_pages() const { return std::ssize(free_); }
  const KvFrames& frames() const { return frames_; }
  // Where pages lie that have no frame; null where all have one.
  KvFlash* flash() const { return flash_.get(); }

  // Bytes of all pages; of those that sequences use; of frames that are lent.
  uint64_t bytes() const { return BytesOf(num_pages()); }
  uint64_t used_bytes() const { return BytesOf(num_pages() - free_pages()); }
  uint64_t lent_bytes() const { return BytesOf(frames_.lent()); }

  // Bytes that a pool with memory for `max_tokens` is charged.
  static uint64_t ChargedBytes(const KvLayout& layout, int64_t max_tokens);

  KvPlace PlaceOf(KvPageId page) const {
    const Home& home = homes_[static_cast<size_t>(page)];
    return {home.frame < 0 ? nullptr : frames_.At(home.frame), home.slot};
  }

  // A pass begins: pages that Append makes room in stay in memory until the next one begins.
  void BeginPass() { uses_.BeginPass(); }
  // The pass uses the pages of these. Brings some of them back into memory where frames are free,
  // or hold what nobody has used for long.
  void Use(std::span<const KvSequence* const> sequences) noexcept;
  // The sequence whose pages could not be spilled or read, where a pass failed of that; null: none.
  // Taking forgets it.
  void NoteFailed(const KvSequence* sequence) { failed_ = sequence; }
  const KvSequence* TakeFailed() { return std::exchange(failed_, nullptr); }

  // Bytes [offset, offset + size) of a page, wherever it lies. Any thread, as long as a sequence
  // keeps the page. Throw Error(kIo).
  void CopyOut(KvPageId page, uint64_t offset, std::span<std::byte> out);
  void CopyIn(KvPageId page, uint64_t offset, std::span<const std::byte> bytes);

 private:
  friend class KvSequence;
  // A frame or a slot of a page that is not free; -1: none.
  struct Home {
    int32_t frame = -1;
    int32_t slot = -1;
  };

  uint64_t BytesOf(int64_t pages) const {
    return static_cast<uint64_t>(pages) * layout_.page_bytes();
  }
  void MakeTables(int64_t max_tokens);

  // A page with a frame, or else with a slot. Throws Error(kOutOfBudget) where none is free, and
  // what TakeFrame does.
  KvPageId Allocate(bool in_memory);
  void DropReference(KvPageId page) noexcept;
  int32_t& ReferencesTo(KvPageId page) { return references_[static_cast<size_t>(page)]; }

  // A frame that is free, or that the coldest page leaves. Throws Error(kOutOfBudget) where there
  // is none, Error(kIo).
  int32_t TakeFrame();
  int32_t Spill(KvPageId page);
  // Gives a page that has a slot a frame. Throws as TakeFrame.
  void BringBack(KvPageId page);
  void BringBackSome(const KvSequence& sequence);
  void Move(KvPageId page, Home to) noexcept;

  KvLayout layout_;
  std::unique_ptr<KvFlash> flash_;
  KvFrames frames_;
  std::vector<int32_t> references_;  // by page
  std::vector<KvPageId> free_;
  std::vector<Home> homes_;              // by page
  std::vector<KvPageId> page_of_frame_;  // kNoKvPage: of none
  KvUses uses_;
  uint64_t moves_ = 0;  // pages that have changed places
  // Guards the places of pages, and the file, where there is one: CopyOut and CopyIn look at them.
  std::mutex mutex_;
  const KvSequence* failed_ = nullptr;
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
  KvPool& pool() const { return *pool_; }

  // Free pages that Append(count) would take.
  int64_t PagesToAppend(int64_t count) const;

  // Makes room for `count` more tokens and counts them as present; their keys and values must be
  // written before they are read. The pages that they go to are in memory, all at once. A shared
  // last page is copied first. Throws Error(kOutOfBudget) when the pool has too few pages or
  // frames, Error(kIo) where pages cannot be spilled; the sequence is then as it was.
  void Append(int64_t count);
  // The same for tokens of an empty sequence that KvPool::CopyIn will write: where there is a file,
  // what does not fit into free frames gets slots.
  void AppendSaved(int64_t count);

  // Drops tokens from the end. new_length <= length().
  void Truncate(int64_t new_length) noexcept;

  // A sequence with the same tokens that shares this one's pages.
  KvSequence Fork() const;

  // In token order.
  std::span<const KvPageId> page_ids() const { return page_ids_; }
  int64_t num_pages() const { return std::ssize(page_ids_); }
  // KvUses::BirthOf one of them. What tokens of a page with this number have changes only where a
  // pass or CopyIn writes them.
  uint64_t BirthOf(KvPageId page) const { return pool_->uses_.BirthOf(page); }
  // Base address of every page, null for those without a frame; valid until the next call that is
  // not const, where there is a file of any sequence.
  std::span<std::byte* const> pages() const;

  // Stores keys and values of token `position` for one layer: num_kv_heads * head_dim floats
  // each, in the page's codec as `encoders` make it. Touches no other token's bytes: distinct
  // (layer, position) pairs may be stored from several threads at once.
  void Store(int64_t layer, int64_t position, const float* keys, const float* values,
             const kernels::KvEncoders& encoders) noexcept;

 private:
  bool MustCopyLast() const;  // before it is written into
  void CheckRoom(int64_t count) const;
  void MakeLastWritable();
  void TakePages(int64_t count);
  void PushPage(KvPageId page);

  KvPool* pool_;
  int64_t length_ = 0;
  std::vector<KvPageId> page_ids_;
  // Addresses of page_ids_ as of moves_ of the pool.
  mutable std::vector<std::byte*> page_data_;
  mutable uint64_t seen_moves_ = 0;
};

}  // namespace hearth
