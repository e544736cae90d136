// The scratch memory of a pass: matrices of floats, laid out once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/budget.h"
#include "base/buffer.h"
#include "tensor/view.h"

namespace hearth {

// Hands out consecutive matrices of one piece of memory; without one it only counts.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* base = nullptr) : base_(base) {}

  FloatView Take(int64_t rows, int64_t cols) {
    // Rows start on cache lines, so that threads that write neighbouring rows do not share one.
    const int64_t stride = (cols + 15) / 16 * 16;
    auto* data = base_ == nullptr ? nullptr : reinterpret_cast<float*>(base_) + used_;
    used_ += rows * stride;
    return {data, rows, cols, stride};
  }
  size_t bytes() const { return static_cast<size_t>(used_) * sizeof(float); }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

// Owns the matrices of `lay(ScratchLayout&)`, a function that takes the same ones whenever it is
// called: first to count, then to place them. So what is charged and what is taken cannot differ.
class ScratchArena {
 public:
  // Charged to `budget` as `purpose`. Throws Error(kOutOfBudget).
  template <class Lay>
  ScratchArena(Budget& budget, const std::string& purpose, Lay&& lay)
      : memory_(budget, purpose, BytesOf(lay)) {
    ScratchLayout layout(memory_.data());
    lay(layout);
  }
  template <class Lay>
  static uint64_t ChargedBytes(Lay&& lay) {
    return Buffer::ChargedBytes(BytesOf(lay));
  }

 private:
  template <class Lay>
  static size_t BytesOf(Lay&& lay) {
    ScratchLayout layout;
    lay(layout);
    return layout.bytes();
  }

  Buffer memory_;
};

}  // namespace hearth
