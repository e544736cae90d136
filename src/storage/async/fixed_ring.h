// A first-in, first-out queue that never allocates after it was made.
#pragma once

#include <cstddef>
#include <vector>

namespace hearth {

// Not thread-safe.
template <typename T>
class FixedRing {
 public:
  explicit FixedRing(size_t capacity) : items_(capacity) {}

  bool empty() const noexcept { return size_ == 0; }
  size_t size() const noexcept { return size_; }
  void Clear() noexcept { size_ = 0; }

  // The i-th from the front; i < size().
  T& operator[](size_t i) noexcept { return items_[Wrap(front_ + i)]; }

  // The caller keeps size() < capacity.
  void Push(const T& item) noexcept { items_[Wrap(front_ + size_++)] = item; }

  // The caller keeps size() > 0.
  T Pop() noexcept {
    const T item = items_[front_];
    front_ = Wrap(front_ + 1);
    --size_;
    return item;
  }

 private:
  size_t Wrap(size_t i) const noexcept { return i < items_.size() ? i : i - items_.size(); }

  std::vector<T> items_;
  size_t front_ = 0;
  size_t size_ = 0;
};

}  // namespace hearth
