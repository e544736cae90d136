// Neurons of a list whose other half is wanted, because their gate says that they fire.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <thread>

namespace hearth {

// Entries are positions in the list. Any thread may add, one at a time takes.
class WantedRests {
 public:
  // Where entries lie. The memory is the caller's and must have room for every position once.
  void SetMemory(int32_t* positions) { positions_ = positions; }
  // Starts anew. While nobody adds or takes.
  void Begin() noexcept {
    num_added_ = 0;
    num_taken_ = 0;
  }
  void Add(const int32_t* positions, int64_t count) noexcept {
    while (adding_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
    const int64_t added = num_added_.load(std::memory_order_relaxed);
    std::copy_n(positions, count, positions_ + added);
    num_added_.store(added + count, std::memory_order_release);
    adding_.clear(std::memory_order_release);
  }
  // What was added since the last call; valid until Begin.
  std::span<const int32_t> Take() noexcept {
    const int64_t first = num_taken_;
    num_taken_ = num_added_.load(std::memory_order_acquire);
    return {positions_ + first, static_cast<size_t>(num_taken_ - first)};
  }

 private:
  int32_t* positions_ = nullptr;
  std::atomic_flag adding_ = ATOMIC_FLAG_INIT;
  std::atomic<int64_t> num_added_{0};
  int64_t num_taken_ = 0;
};

}  // namespace hearth
