#include "kv/kv_frames.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hearth {

KvFrames::KvFrames(Budget& budget, size_t page_bytes, int64_t count)
    : page_bytes_(page_bytes),
      count_(count),
      own_(budget, "kv cache", page_bytes * static_cast<size_t>(count)),
      data_(own_.data()) {
  FreeAll(count);
}

KvFrames::KvFrames(LentKvMemory memory, size_t page_bytes, int64_t count)
    : page_bytes_(page_bytes), count_(count), owner_(std::move(memory)), data_(owner_.pages) {
  FreeAll(count);
  lent_.reserve(free_.capacity());
  lent_.swap(free_);
}

void KvFrames::FreeAll(int64_t count) {
  free_.reserve(static_cast<size_t>(count));
  for (int64_t i = count; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
}

void KvFrames::Reserve(int64_t count) {
  try {
    while (std::ssize(free_) < count && !lent_.empty()) {
      const int32_t frame = lent_.back();
      owner_.take(frame);
      // Kernels may load values that no token has written; they must be numbers.
      std::memset(At(frame), 0, page_bytes_);
      lent_.pop_back();
      free_.push_back(frame);
    }
  } catch (...) {
    LendFree();
    throw;
  }
}

int32_t KvFrames::Take() {
  Reserve(1);
  const int32_t frame = free_.back();
  free_.pop_back();
  return frame;
}

void KvFrames::GiveBack(int32_t frame) noexcept {
  // free_ and lent_ were reserved for all frames, so that neither can throw.
  free_.push_back(frame);
  if (own_.size_bytes() == 0) LendFree();
}

// Lends the highest frames first, so that frames in use stay together.
void KvFrames::LendFree() noexcept {
  while (free_.size() > kKept) {
    const auto highest = std::max_element(free_.begin(), free_.end());
    const int32_t frame = *highest;
    free_.erase(highest);
    owner_.give_back(frame);
    lent_.insert(std::upper_bound(lent_.begin(), lent_.end(), frame, std::greater<>()), frame);
  }
}

}  // namespace hearth
