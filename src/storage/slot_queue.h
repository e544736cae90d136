// The part of a ReadQueue over a file on disk that does not depend on the backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "storage/async_reader.h"
#include "storage/fixed_ring.h"
#include "storage/opened_file.h"
#include "storage/read_progress.h"

namespace hearth {

// Requests pass through three places: `waiting`, in order, until one of depth() slots is free; the
// slot, while the backend reads; and, where they fail before they get that far, `failed`. After
// every call, requests wait only where all slots are taken.
class SlotQueue : public ReadQueue {
 public:
  // `options` as CheckedQueueOptions returned them; `file` must outlive the queue.
  SlotQueue(const OpenedFile& file, const QueueOptions& options);

  int depth() const noexcept override { return static_cast<int>(slots_.size()); }
  size_t capacity() const noexcept override { return capacity_; }
  size_t in_flight() const noexcept override { return in_flight_; }
  size_t Submit(std::span<const ReadRequest> requests) noexcept override;
  size_t Poll(std::span<ReadCompletion> completions) noexcept override;
  size_t Wait(std::span<ReadCompletion> completions) noexcept override;

 protected:
  // Backends implement these three and call Drain in their destructor. Start hands what is left
  // of a slot's read to the system, at the latest with the next Flush.
  virtual void Start(uint32_t slot) noexcept = 0;
  virtual void Flush() noexcept = 0;
  // Takes results of the system, passes each to Advance or Finish, and returns how many
  // completions those made, at most completions.size(), which is not 0. With `block`, sleeps until
  // there is a result; only then may it return 0 with results at hand.
  virtual size_t Reap(std::span<ReadCompletion> completions, bool block) noexcept = 0;

  // What the system returned for a slot. True where that ends the read: `completion` is filled in
  // and the slot is free. False where the rest has been started.
  bool Advance(uint32_t slot, int64_t result, ReadCompletion* completion) noexcept;
  // Ends a slot's read with `error`.
  void Finish(uint32_t slot, int error, ReadCompletion* completion) noexcept;
  // Ends a slot's read with `error`; the completion is handed back by the next Poll or Wait.
  void Fail(uint32_t slot, int error) noexcept;
  // Forgets what waits, and sleeps until no slot is in the system's hands.
  void Drain() noexcept;

  ReadProgress& slot(uint32_t index) noexcept { return slots_[index]; }
  // Slots that are taken.
  size_t running() const noexcept { return slots_.size() - free_slots_.size(); }
  const OpenedFile& file() const noexcept { return file_; }

 private:
  size_t Collect(std::span<ReadCompletion> completions, bool block) noexcept;
  void StartWaiting() noexcept;

  const OpenedFile& file_;
  CacheDropper dropper_;
  const size_t capacity_;
  size_t in_flight_ = 0;
  std::vector<ReadProgress> slots_;
  std::vector<uint32_t> free_slots_;
  FixedRing<ReadRequest> waiting_;
  FixedRing<ReadCompletion> failed_;
};

}  // namespace hearth
