// The memory of KV pages: frames, each of which holds a page or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"

namespace hearth {

// Memory whose owner uses each frame until the pool needs it, and charges it to the budget.
struct LentKvMemory {
  std::byte* pages = nullptr;  // frame i begins at i times the bytes of a page
  // The pool calls this before it uses a frame: when it returns, the owner no longer touches the
  // frame. Throws Error(kOutOfBudget) where the owner cannot give it up.
  std::function<void(int64_t frame)> take;
  // The pool no longer uses a frame. Must not throw.
  std::function<void(int64_t frame)> give_back;
};

// Not thread-safe. States of a frame: (lent ->) free -> taken -> free (-> lent).
class KvFrames {
 public:
  // Free frames that lent memory keeps, so that a sequence that gives up its last page and takes
  // one again, token after token, moves nothing.
  static constexpr size_t kKept = 2;

  // Charged to `budget` as "kv cache". Throws Error(kOutOfBudget).
  KvFrames(Budget& budget, size_t page_bytes, int64_t count);
  // All are lent at first. `memory` must outlive this.
  KvFrames(LentKvMemory memory, size_t page_bytes, int64_t count);

  int64_t count() const { return count_; }
  // Frames that the owner of the memory uses; frames that can be taken, those included.
  int64_t lent() const { return std::ssize(lent_); }
  int64_t available() const { return std::ssize(free_) + lent(); }
  std::byte* At(int32_t frame) const { return data_ + static_cast<size_t>(frame) * page_bytes_; }

  // Takes lent frames until so many are free, or none is lent any more. Throws
  // Error(kOutOfBudget), with nothing changed.
  void Reserve(int64_t count);
  // The caller keeps available() > 0. Throws as Reserve.
  int32_t Take();
  void GiveBack(int32_t frame) noexcept;

 private:
  void FreeAll(int64_t count);
  void LendFree() noexcept;

  size_t page_bytes_;
  int64_t count_;
  Buffer own_;  // empty where it is lent
  LentKvMemory owner_;
  std::byte* data_;
  std::vector<int32_t> free_;
  std::vector<int32_t> lent_;  // descending, so that the lowest is taken first
};

}  // namespace hearth
