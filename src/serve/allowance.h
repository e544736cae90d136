// How many bytes the server holds for its clients, all of them together: bodies of requests, what
// is made of them until they are answered, answers that are collected, and those that wait to be
// sent. What would be more is refused, so
// that the server's part of the memory limit is kept however many ask.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace hearth::serve {

// Thread-safe.
class Allowance {
 public:
  // Shares that are larger leave a quarter of it to smaller ones.
  static constexpr size_t kSmallBytes = size_t{32} << 10;

  explicit Allowance(size_t limit_bytes) : limit_(limit_bytes) {}

  // What a single share may have at most.
  size_t most_of_one() const { return limit_ - limit_ / 4; }

 private:
  friend class AllowanceShare;

  bool Take(size_t bytes, size_t most) {
    size_t held = held_.load(std::memory_order_relaxed);
    do {
      if (bytes > most || held > most - bytes) return false;
    } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return true;
  }
  void Give(size_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }

  const size_t limit_;
  std::atomic<size_t> held_{0};
};

// What one buffer takes of it. Gives it back when it is destroyed. One thread at a time.
class AllowanceShare {
 public:
  explicit AllowanceShare(std::shared_ptr<Allowance> allowance)
      : allowance_(std::move(allowance)) {}
  ~AllowanceShare() { Resize(0); }
  AllowanceShare(const AllowanceShare&) = delete;
  AllowanceShare& operator=(const AllowanceShare&) = delete;

  size_t bytes() const { return bytes_; }
  // False: so much is not left, and nothing has changed.
  bool Resize(size_t bytes) {
    const size_t most =
        bytes > Allowance::kSmallBytes ? allowance_->most_of_one() : allowance_->limit_;
    if (bytes > bytes_ && !allowance_->Take(bytes - bytes_, most)) return false;
    if (bytes < bytes_) allowance_->Give(bytes_ - bytes);
    bytes_ = bytes;
    return true;
  }

 private:
  const std::shared_ptr<Allowance> allowance_;
  size_t bytes_ = 0;
};

}  // namespace hearth::serve
