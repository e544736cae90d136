// Requests of a queue that no read has begun for: those that somebody waits for, in order, and then
// guesses, in order.
#pragma once

#include <cerrno>
#include <cstddef>

#include "storage/async/async_reader.h"
#include "storage/async/fixed_ring.h"

namespace hearth {

// Not thread-safe; never allocates after it was made.
class WaitingReads {
 public:
  explicit WaitingReads(size_t capacity) : wanted_(capacity), guesses_(capacity) {}

  bool empty() const noexcept { return size() == 0; }
  size_t size() const noexcept { return wanted_.size() + guesses_.size(); }
  // Of the requests that go next, which are all wanted or all guesses.
  FixedRing<ReadRequest>& next() noexcept { return wanted_.empty() ? guesses_ : wanted_; }

  // The caller keeps size() < capacity.
  void Push(const ReadRequest& request) noexcept {
    (request.is_guess ? guesses_ : wanted_).Push(request);
  }
  // The caller keeps size() > 0.
  ReadRequest Pop() noexcept { return next().Pop(); }
  void Clear() noexcept {
    wanted_.Clear();
    guesses_.Clear();
  }
  // Moves all guesses to `ended`, which has room for them.
  void WithdrawGuesses(FixedRing<ReadCompletion>& ended) noexcept {
    while (!guesses_.empty()) ended.Push({guesses_.Pop().tag, ECANCELED});
  }

 private:
  FixedRing<ReadRequest> wanted_;
  FixedRing<ReadRequest> guesses_;
};

}  // namespace hearth
