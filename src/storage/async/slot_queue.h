// The part of a ReadQueue over a file on disk that does not depend on the backend.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "storage/async/async_reader.h"
#include "storage/async/fixed_ring.h"
#include "storage/async/opened_file.h"
#include "storage/async/read_progress.h"
#include "storage/async/waiting_reads.h"

namespace hearth {

// Requests pass through three places: `waiting`, in order, guesses last, until one of depth() slots
// is free; the slot, while the backend reads; and `ended`, where they fail before they get that far
// or end together with others. After every call, requests wait only where all slots are taken.
//
// Where options.merge_gap_bytes says so, a slot is one read for several requests that wait one
// after the other. What does not come of it as a whole is read request by request.
class SlotQueue : public ReadQueue {
 public:
  // Requests that are read together, at the most.
  static constexpr size_t kMostTogether = 8;

  // `options` as CheckedQueueOptions returned them; `file` must outlive the queue.
  SlotQueue(const OpenedFile& file, const QueueOptions& options);

  int depth() const noexcept override { return static_cast<int>(slots_.size()); }
  size_t capacity() const noexcept override { return capacity_; }
  size_t in_flight() const noexcept override { return in_flight_; }
  size_t Submit(std::span<const ReadRequest> requests) noexcept override;
  size_t Poll(std::span<ReadCompletion> completions) noexcept override;
  size_t Wait(std::span<ReadCompletion> completions) noexcept override;
  void WithdrawGuesses() noexcept override { waiting_.WithdrawGuesses(ended_); }
  uint64_t gap_bytes() const noexcept override { return gap_bytes_; }

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
  // Where the bytes of a slot go, in order, that is a read for several requests; of others empty.
  // Such a slot is given to Advance, whatever the system returned, and not to Finish.
  std::span<const iovec> pieces(uint32_t index) const noexcept {
    return groups_.empty() ? std::span<const iovec>() : groups_[index].used_pieces();
  }
  // Slots that are taken.
  size_t running() const noexcept { return slots_.size() - free_slots_.size(); }
  const OpenedFile& file() const noexcept { return file_; }

 private:
  // Several requests of one slot, ascending.
  struct Group {
    std::array<ReadRequest, kMostTogether> requests;
    std::array<iovec, 2 * kMostTogether> pieces;  // theirs, and those between
    size_t num_requests = 0;                      // 0: the slot has one of its own
    size_t num_pieces = 0;

    std::span<const iovec> used_pieces() const noexcept {
      return std::span(pieces).first(num_pieces);
    }
    void Add(std::byte* data, size_t bytes) noexcept { pieces[num_pieces++] = {data, bytes}; }
  };

  size_t Collect(std::span<ReadCompletion> completions, bool block) noexcept;
  size_t TakeEnded(std::span<ReadCompletion> completions) noexcept;
  void StartWaiting() noexcept;
  void Gather(uint32_t index) noexcept;
  void Separate(uint32_t index) noexcept;

  const OpenedFile& file_;
  CacheDropper dropper_;
  const size_t capacity_;
  size_t in_flight_ = 0;
  std::vector<ReadProgress> slots_;
  std::vector<uint32_t> free_slots_;
  WaitingReads waiting_;
  FixedRing<ReadRequest> separated_;  // of groups; go before those that wait, and alone
  FixedRing<ReadCompletion> ended_;
  // Where requests are merged.
  std::optional<uint32_t> merge_gap_bytes_;
  std::vector<Group> groups_;  // of the slots
  Budget gap_budget_;
  Buffer gap_memory_;  // takes what lies between them
  uint64_t gap_bytes_ = 0;
};

}  // namespace hearth
