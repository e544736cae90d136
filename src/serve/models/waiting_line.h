// Requests that wait for their models, in order of arrival.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "serve/request_error.h"

namespace hearth::serve {

class Resident;

// What becomes of a request: its model is there, or cannot be. One of the two is called, once.
struct ModelWishes {
  std::function<void(Resident& model)> on_ready;
  std::function<void(const RequestError& error)> on_failed;
};

class WaitingLine {
 public:
  using Ticket = uint64_t;
  struct Waiter {
    Ticket ticket = 0;
    std::string model;
    ModelWishes wishes;
  };
  using IsFn = std::function<bool(const std::string& model)>;

  // Never 0.
  Ticket Add(const std::string& model, ModelWishes wishes) {
    waiters_.push_back({++last_ticket_, model, std::move(wishes)});
    return last_ticket_;
  }
  // False where it does not wait.
  bool Remove(Ticket ticket) {
    return std::erase_if(waiters_, [&](const Waiter& one) { return one.ticket == ticket; }) > 0;
  }
  // Takes those out whose model `is`.
  std::vector<Waiter> Take(const IsFn& is) {
    std::vector<Waiter> taken;
    const auto rest = std::stable_partition(waiters_.begin(), waiters_.end(),
                                            [&](const Waiter& one) { return !is(one.model); });
    std::move(rest, waiters_.end(), std::back_inserter(taken));
    waiters_.erase(rest, waiters_.end());
    return taken;
  }
  // The model of the first whose model `is`; empty: there is none.
  std::string First(const IsFn& is) const {
    const auto first = std::find_if(waiters_.begin(), waiters_.end(),
                                    [&](const Waiter& one) { return is(one.model); });
    return first == waiters_.end() ? "" : first->model;
  }
  bool Has(const std::string& model) const {
    return !First([&](const std::string& waits) { return waits == model; }).empty();
  }
  size_t size() const { return waiters_.size(); }

 private:
  std::deque<Waiter> waiters_;
  Ticket last_ticket_ = 0;
};

}  // namespace hearth::serve
