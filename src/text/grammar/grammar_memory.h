// How much memory grammars may take, all of a model's together, so that requests with schemas keep
// to the memory limit however many they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace hearth {

// Thread-safe.
class GrammarMemory {
 public:
  explicit GrammarMemory(size_t limit_bytes) : limit_(limit_bytes) {}

  size_t limit_bytes() const { return limit_; }
  size_t held_bytes() const { return held_.load(std::memory_order_relaxed); }

 private:
  friend class GrammarShare;

  bool Take(size_t bytes) {
    size_t held = held_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ || held > limit_ - bytes) return false;
    } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return true;
  }
  void Give(size_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }

  const size_t limit_;
  std::atomic<size_t> held_{0};
};

// A part of it, given back when it is destroyed. Null memory: whatever is asked for. One thread at
// a time.
class GrammarShare {
 public:
  explicit GrammarShare(std::shared_ptr<GrammarMemory> memory = nullptr)
      : memory_(std::move(memory)) {}
  GrammarShare(GrammarShare&& other) noexcept
      : memory_(std::move(other.memory_)), bytes_(std::exchange(other.bytes_, 0)) {}
  GrammarShare& operator=(GrammarShare&& other) noexcept {
    Resize(0);
    memory_ = std::move(other.memory_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~GrammarShare() { Resize(0); }

  size_t bytes() const { return bytes_; }
  const std::shared_ptr<GrammarMemory>& memory() const { return memory_; }
  // False: so much is not left, and nothing has changed.
  bool Resize(size_t bytes) {
    if (memory_ && bytes > bytes_ && !memory_->Take(bytes - bytes_)) return false;
    if (memory_ && bytes < bytes_) memory_->Give(bytes_ - bytes);
    bytes_ = bytes;
    return true;
  }

 private:
  std::shared_ptr<GrammarMemory> memory_;
  size_t bytes_ = 0;
};

}  // namespace hearth
