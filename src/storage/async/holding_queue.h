// A queue that hands completions back later than the queue below it: for decorators that model
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "storage/async/async_reader.h"
#include "storage/async/fixed_ring.h"
#include "storage/async/waiting_reads.h"
#include "storage/clock.h"

namespace hearth {

// A read is issued when one of depth() places is free, is passed on at once, and completes when
// both the queue below and the clock say so.
class HoldingQueue : public ReadQueue {
 public:
  // `clock` must outlive the queue.
  HoldingQueue(std::unique_ptr<ReadQueue> inner, const Clock& clock);

  int depth() const noexcept override { return inner_->depth(); }
  size_t capacity() const noexcept override { return inner_->capacity(); }
  size_t in_flight() const noexcept override {
    return waiting_.size() + issued_ + withdrawn_.size();
  }
  size_t Submit(std::span<const ReadRequest> requests) noexcept override;
  size_t Poll(std::span<ReadCompletion> completions) noexcept override;
  size_t Wait(std::span<ReadCompletion> completions) noexcept override;
  void WithdrawGuesses() noexcept override { waiting_.WithdrawGuesses(withdrawn_); }
  bool RegisterBuffers(std::span<const std::span<std::byte>> regions) override {
    return inner_->RegisterBuffers(regions);
  }
  bool registered() const noexcept override { return inner_->registered(); }
  uint64_t gap_bytes() const noexcept override { return inner_->gap_bytes(); }

 protected:
  // When a read that is issued now may complete. `slot` is its own until Completed.
  virtual int64_t DueNs(uint32_t slot, const ReadRequest& request, int64_t now_ns) noexcept = 0;
  // The read has been done below with `error`; returns what the caller is told, and may change
  // the data.
  virtual int Completed(uint32_t slot, const ReadRequest& request, int error) noexcept {
    static_cast<void>(slot);
    static_cast<void>(request);
    return error;
  }

 private:
  struct Held {
    ReadRequest request;
    int64_t due_ns = 0;
    uint64_t order = 0;  // of issue
    int error = 0;
  };

  size_t Collect(std::span<ReadCompletion> completions, bool block) noexcept;
  void Issue(int64_t now_ns) noexcept;
  // Moves what the queue below has done to done_; with `block`, waits for one.
  void TakeDone(bool block) noexcept;
  bool LaterThan(uint32_t a, uint32_t b) const noexcept;

  const std::unique_ptr<ReadQueue> inner_;
  const Clock& clock_;
  WaitingReads waiting_;
  FixedRing<ReadCompletion> withdrawn_;
  std::vector<Held> held_;  // one for each place
  std::vector<uint32_t> free_;
  std::vector<uint32_t> done_;  // a heap of slots, the first due on top
  std::vector<ReadRequest> batch_;
  std::vector<ReadCompletion> batch_done_;
  size_t issued_ = 0;
  uint64_t orders_ = 0;
};

}  // namespace hearth
