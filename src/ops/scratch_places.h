// Where the arrays of a scratch buffer lie in it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth {

// Hands out places one after the other, each from a cache line on. Sizes are the caller's to check.
class ScratchPlaces {
 public:
  // Where `count` entries of `bytes` each begin, in bytes from the start of the buffer.
  size_t Take(int64_t count, size_t bytes) {
    const size_t place = used_;
    used_ += (static_cast<size_t>(count) * bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    return place;
  }
  // Bytes of all of them.
  size_t used() const { return used_; }

 private:
  static constexpr size_t kCacheLine = 64;

  size_t used_ = 0;
};

}  // namespace hearth
