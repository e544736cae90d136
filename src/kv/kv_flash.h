// Pages of a KV cache that have left memory (M §4.1): each takes a slot of a file without a name.
//
// A page is cut into parts, one per layer. In the file all slots of a layer follow each other, so
// that attention, which needs one layer at a time, reads long runs (kv_ring.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "kv/kv_ring.h"
#include "storage/async/unnamed_file.h"
#include "tensor/kv_layout.h"

namespace hearth {

// What has moved so far.
struct KvFlashCounts {
  uint64_t written_bytes = 0;
  uint64_t read_bytes = 0;  // by attention
  double wait_seconds = 0;  // of attention, for reads
};

// The ring is the engine's thread's; of all else the pool calls one function at a time.
class KvFlash {
 public:
  // `file` is as long as FileBytes says. Charges ChargedBytes as "kv buffers". Throws
  // Error(kOutOfBudget), Error(kIo) where the system refuses a queue of reads.
  KvFlash(Budget& budget, const KvLayout& layout, int64_t slots, UnnamedFile file);

  static uint64_t FileBytes(const KvLayout& layout, int64_t slots);
  static uint64_t ChargedBytes(const KvLayout& layout, int64_t slots);

  int64_t num_slots() const { return map_.slots; }
  int64_t used_slots() const { return map_.slots - std::ssize(free_); }
  // Bytes of pages in the file, without what rounding adds.
  uint64_t used_bytes() const {
    return static_cast<uint64_t>(used_slots()) * map_.layout.page_bytes();
  }
  KvFlashCounts counts() const;
  const AsyncFile& file() const { return *file_.file; }

  // A slot whose bytes are unspecified. One must be free.
  int32_t TakeSlot();
  void DropSlot(int32_t slot) noexcept;

  // Bytes [offset, offset + size) of a page in a slot. Throw Error(kIo).
  void Write(int32_t slot, uint64_t offset, std::span<const std::byte> bytes);
  void Read(int32_t slot, uint64_t offset, std::span<std::byte> out);

  KvRing& ring() { return ring_; }

 private:
  // Parts of a page that are read at once.
  static constexpr int64_t kPartsAtOnce = 8;

  // Bytes of one part.
  struct Piece {
    int64_t layer;
    size_t begin;  // in the part
    size_t bytes;
    uint64_t at;  // from the first byte asked for
  };
  std::vector<Piece> Cut(uint64_t offset, size_t bytes) const;
  void ReadParts(int32_t slot, std::span<const Piece> pieces);
  std::byte* bounce(size_t index) { return bounce_.data() + index * map_.stride(); }

  const KvFileMap map_;
  UnnamedFile file_;
  std::unique_ptr<ReadQueue> queue_;
  Buffer bounce_;              // kPartsAtOnce parts
  std::vector<int32_t> free_;  // a heap, the lowest first
  std::atomic<uint64_t> written_bytes_ = 0;
  KvRing ring_;
};

}  // namespace hearth
