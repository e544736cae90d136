// Counts what a rendering holds, before the memory is taken: a template from a file may try to take
// all there is.
//
// Texts, lists and objects of the interpreter ask the meter of their thread, which a MeterScope
// puts there; where there is none nothing is counted. (Their constructors are called in hundreds of
// places that know no rendering, hence the thread's variable.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "text/jinja/values/failure.h"

namespace hearth::jinja {

// Asked whether `bytes` in all may be held.
using MayHoldFn = std::function<bool(size_t bytes)>;

// Used by one thread at a time.
class MemoryMeter {
 public:
  // may_hold: asked now and then, before more than it has granted is taken. Empty: always.
  explicit MemoryMeter(size_t max_bytes, MayHoldFn may_hold = {})
      : max_bytes_(max_bytes), may_hold_(std::move(may_hold)) {}

  // Throws LimitExceeded past the bound, MemoryRefused where may_hold refuses; nothing is counted
  // then.
  void Take(size_t bytes) {
    if (bytes > max_bytes_ - used_bytes_) {
      throw LimitExceeded("the template needs too much memory");
    }
    if (bytes > granted_bytes_ - used_bytes_) Ask(used_bytes_ + bytes);
    used_bytes_ += bytes;
  }
  // What was taken before the scope began may be given back in it.
  void Give(size_t bytes) noexcept { used_bytes_ -= std::min(bytes, used_bytes_); }
  size_t used_bytes() const { return used_bytes_; }

  static MemoryMeter* current() { return current_; }

 private:
  friend class MeterScope;
  static constexpr size_t kStepBytes = size_t{128} << 10;

  void Ask(size_t least) {
    const size_t wanted = std::min(std::max(least + kStepBytes, least), max_bytes_);
    if (may_hold_ && !may_hold_(wanted)) {
      throw MemoryRefused("rendering the conversation needs more memory than is left for it");
    }
    granted_bytes_ = wanted;
  }

  inline static thread_local MemoryMeter* current_ = nullptr;
  const size_t max_bytes_;
  const MayHoldFn may_hold_;
  size_t used_bytes_ = 0;
  size_t granted_bytes_ = 0;
};

// While it lives, what this thread renders is counted by the meter.
class MeterScope {
 public:
  explicit MeterScope(MemoryMeter& meter) : outer_(std::exchange(MemoryMeter::current_, &meter)) {}
  ~MeterScope() { MemoryMeter::current_ = outer_; }
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  MemoryMeter* const outer_;
};

// Before `bytes` are taken that no MeteredAllocator sees.
inline void TakeMemory(size_t bytes) {
  if (MemoryMeter* const meter = MemoryMeter::current()) meter->Take(bytes);
}

// std::allocator that asks first.
template <typename T>
struct MeteredAllocator {
  using value_type = T;
  MeteredAllocator() = default;
  template <typename U>
  MeteredAllocator(const MeteredAllocator<U>&) noexcept {}  // NOLINT: allocators convert

  T* allocate(size_t count) {
    if (MemoryMeter* const meter = MemoryMeter::current()) {
      if (count > (static_cast<size_t>(-1) - kOverheadBytes) / sizeof(T)) throw std::bad_alloc();
      meter->Take(BytesOf(count));
    }
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* place, size_t count) noexcept {
    std::allocator<T>().deallocate(place, count);
    if (MemoryMeter* const meter = MemoryMeter::current()) meter->Give(BytesOf(count));
  }

  friend bool operator==(const MeteredAllocator&, const MeteredAllocator&) { return true; }

 private:
  // What the system's allocator takes beside each block, about.
  static constexpr size_t kOverheadBytes = 16;
  static size_t BytesOf(size_t count) { return count * sizeof(T) + kOverheadBytes; }
};

}  // namespace hearth::jinja
