// Anonymous memory for weights, caches and activations, counted in the budget ledger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/budget.h"

namespace hearth {

// Huge pages seldom make up a whole block. With kFirst they come first and small pages follow them;
// with kLast they come last.
enum class HugeEnd { kFirst, kLast };

// A zero-filled, page-aligned block of anonymous memory, on huge pages where the system grants
// them (it is only asked for blocks of 2 MiB and more). Movable; frees itself.
class Buffer {
 public:
  // Bytes past the end that may be read (not written): SIMD kernels load whole vectors.
  static constexpr size_t kReadPadding = 64;

  Buffer() = default;
  // Charges `budget` under `name` first. Throws Error(kOutOfBudget) or, where the system has no
  // memory, Error(kIo). Zero bytes make an empty buffer.
  Buffer(Budget& budget, std::string_view name, size_t bytes, HugeEnd end = HugeEnd::kFirst);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  size_t size_bytes() const noexcept { return bytes_; }

  // The first count elements as T. The caller keeps count * sizeof(T) <= size_bytes().
  template <typename T>
  std::span<T> As(size_t count) {
    return {reinterpret_cast<T*>(data_), count};
  }
  template <typename T>
  std::span<const T> As(size_t count) const {
    return {reinterpret_cast<const T*>(data_), count};
  }

  // What a buffer of `bytes` is charged: rounded up to pages, read padding included.
  static uint64_t ChargedBytes(size_t bytes);
  // At least `bytes`: as many as end with a huge page where a block of `bytes` has any. Direct
  // reads into the small pages that would follow the last huge one go on at less than half the
  // rate.
  static size_t UpToHugePage(size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_bytes_ = 0;
  BudgetCharge charge_;
};

}  // namespace hearth
