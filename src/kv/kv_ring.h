// Reads the parts of KV pages that attention needs, one layer ahead of it.
//
// Two or more buffers have a place for each slot of the file. While a layer's attention works with
// one, the others are filled for the next layers: during this layer's FFN and the next one's
// projections (M §4.1). As soon as a layer's attention has ended, its buffer is filled for the
// first layer that has none; after the last layers, with the first ones of the pass that is
// expected to follow. States of a buffer: free -> waiting -> filling -> filled -> (its layer's
// attention) -> free.
//
// A buffer waits until the buffers before it are filled. If two layers were read at the same time,
// they would share the disk, and the layer that is needed first would come later. Some disks even
// report nothing until they have done everything that they were asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/rounding.h"
#include "storage/async/async_reader.h"
#include "storage/async/unnamed_file.h"
#include "tensor/kv_layout.h"

namespace hearth {

// Where parts of pages lie in a file.
struct KvFileMap {
  KvLayout layout;
  int64_t slots = 0;

  size_t part_bytes() const {
    return layout.head_bytes() * static_cast<size_t>(layout.num_kv_heads);
  }
  // A part with what direct reads and writes add to it.
  size_t stride() const { return RoundUp(part_bytes(), size_t{UnnamedFile::kAlignment}); }
  uint64_t OffsetOf(int64_t layer, int64_t slot) const {
    return static_cast<uint64_t>(layer * slots + slot) * stride();
  }
  // Of all slots of one layer.
  size_t layer_bytes() const { return static_cast<size_t>(slots) * stride(); }
  // Layers that have a buffer at a time. A disk reaches its rate with some megabytes on their way,
  // which few pages of one layer are not.
  int64_t buffers() const;
};

// Slots that the attention of each layer reads, ascending; by layer.
using KvSlotLists = std::span<const std::span<const int32_t>>;

// One thread at a time. Calls of a pass come as Begin and, for each layer, Wait and Done; after a
// pass that failed with the next Begin.
class KvRing {
 public:
  // Reads at once, and bytes of one at most: what the disk does while nobody polls.
  static constexpr int kDepth = 32;
  static constexpr uint64_t kMostRunBytes = uint64_t{1} << 20;
  // Several waiting buffers are filled at the same time if they have at most this many bytes in
  // total.
  static constexpr uint64_t kTogetherBytes = uint64_t{2} << 20;

  // Charges ChargedBytes to `budget` as "kv buffers". `file` must outlive the ring. Throws
  // Error(kOutOfBudget), Error(kIo).
  KvRing(Budget& budget, const KvFileMap& map, AsyncFile& file);

  static uint64_t ChargedBytes(const KvFileMap& map);

  // What is in the file has changed: what was read ahead of a pass is read again.
  void Forget() { ++epoch_; }

  // A pass begins, of as many layers as there are lists, which must stay as they are until it ends.
  void Begin(KvSlotLists lists);
  // Sleeps until the layer's parts are there. Where reads failed, throws Error(kIo), and
  // failed_slot() is one of them.
  void Wait(int64_t layer);
  // Where the part of a slot lies, of a layer that was waited for.
  std::byte* PartOf(int64_t layer, int32_t slot) {
    return BufferOf(layer).memory + static_cast<size_t>(slot) * map_.stride();
  }
  // The layer's attention has ended.
  void Done(int64_t layer);
  // Keeps reads going.
  void Poll() noexcept;

  int32_t failed_slot() const { return failed_slot_; }
  uint64_t read_bytes() const { return read_bytes_; }
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct Side {
    std::byte* memory = nullptr;
    std::vector<int32_t> list;  // of what is read
    uint64_t epoch = 0;         // when that was asked for
    int64_t file_layer = 0;
    bool is_waiting = false;
    int64_t in_flight = 0;
    int error = 0;  // of the last read that failed
    int32_t failed_slot = -1;
  };

  // The first slot of a run, and which side it is for.
  uint64_t TagOf(size_t side, int32_t slot) const {
    return static_cast<uint64_t>(slot) * sides_.size() + side;
  }
  Side& BufferOf(int64_t layer) {
    return sides_[static_cast<size_t>((first_visit_ + layer) % std::ssize(sides_))];
  }
  void Fill(int64_t layer, std::span<const int32_t> list);
  void AddReads(const Side& side);
  void StartWaiting() noexcept;
  void WaitForSome() noexcept;
  void Drain() noexcept;
  bool IsAhead(KvSlotLists lists) const;
  void Take(std::span<const ReadCompletion> completions) noexcept;

  const KvFileMap map_;
  AsyncFile& file_;
  Buffer memory_;
  std::vector<Side> sides_;
  std::unique_ptr<ReadQueue> queue_;
  std::vector<ReadRequest> requests_;
  std::vector<size_t> waiting_;  // sides, the first to be filled first
  KvSlotLists lists_;            // of the pass
  std::vector<int32_t> last_first_list_;
  int64_t first_visit_ = 0;  // counts layers of all passes, which have the sides in turn
  bool in_pass_ = false;
  bool expects_same_ = false;  // the pass reads what the one before it read
  bool is_ahead_ = false;      // the first layers of a next pass are being read
  uint64_t epoch_ = 0;
  int32_t failed_slot_ = -1;
  uint64_t read_bytes_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace hearth
