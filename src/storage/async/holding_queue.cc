#include "storage/async/holding_queue.h"

#include <algorithm>
#include <utility>

namespace hearth {
namespace {

// How long a wait for the clock may go without a look at the queue below.
constexpr int64_t kLookBelowNs = 20'000;

}  // namespace

HoldingQueue::HoldingQueue(std::unique_ptr<ReadQueue> inner, const Clock& clock)
    : inner_(std::move(inner)),
      clock_(clock),
      waiting_(inner_->capacity()),
      withdrawn_(inner_->capacity()),
      held_(static_cast<size_t>(inner_->depth())),
      batch_done_(held_.size()) {
  free_.reserve(held_.size());
  done_.reserve(held_.size());
  batch_.reserve(held_.size());
  for (size_t i = held_.size(); i-- > 0;) free_.push_back(static_cast<uint32_t>(i));
}

size_t HoldingQueue::Submit(std::span<const ReadRequest> requests) noexcept {
  const size_t taken = std::min(requests.size(), capacity() - in_flight());
  for (const ReadRequest& request : requests.first(taken)) waiting_.Push(request);
  Issue(clock_.NowNs());
  return taken;
}

size_t HoldingQueue::Poll(std::span<ReadCompletion> completions) noexcept {
  return Collect(completions, false);
}

size_t HoldingQueue::Wait(std::span<ReadCompletion> completions) noexcept {
  return Collect(completions, true);
}

size_t HoldingQueue::Collect(std::span<ReadCompletion> completions, bool block) noexcept {
  if (completions.empty() || in_flight() == 0) return 0;
  const auto later = [this](uint32_t a, uint32_t b) { return LaterThan(a, b); };
  size_t count = 0;
  while (count < completions.size() && !withdrawn_.empty()) {
    completions[count++] = withdrawn_.Pop();
  }
  for (;;) {
    TakeDone(false);
    const int64_t now = clock_.NowNs();
    while (count < completions.size() && !done_.empty() && held_[done_[0]].due_ns <= now) {
      std::pop_heap(done_.begin(), done_.end(), later);
      const uint32_t slot = done_.back();
      done_.pop_back();
      completions[count++] = {held_[slot].request.tag, held_[slot].error};
      free_.push_back(slot);
      --issued_;
    }
    Issue(now);
    if (count > 0 || !block) return count;
    if (done_.empty()) {
      TakeDone(true);
    } else {
      const int64_t due_ns = held_[done_[0]].due_ns;
      const bool look_below = inner_->in_flight() > 0;
      clock_.SleepUntilNs(look_below ? std::min(due_ns, now + kLookBelowNs) : due_ns);
    }
  }
}

void HoldingQueue::Issue(int64_t now_ns) noexcept {
  batch_.clear();
  while (!waiting_.empty() && !free_.empty()) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    Held& held = held_[slot];
    held.request = waiting_.Pop();
    held.order = orders_++;
    held.due_ns = DueNs(slot, held.request, now_ns);
    batch_.push_back(held.request);
    batch_.back().tag = slot;
  }
  issued_ += batch_.size();
  // All are taken: no more than depth() are ever below.
  if (!batch_.empty()) static_cast<void>(inner_->Submit(batch_));
}

void HoldingQueue::TakeDone(bool block) noexcept {
  const size_t got = block ? inner_->Wait(batch_done_) : inner_->Poll(batch_done_);
  for (size_t i = 0; i < got; ++i) {
    const auto slot = static_cast<uint32_t>(batch_done_[i].tag);
    held_[slot].error = Completed(slot, held_[slot].request, batch_done_[i].error);
    done_.push_back(slot);
    std::push_heap(done_.begin(), done_.end(),
                   [this](uint32_t a, uint32_t b) { return LaterThan(a, b); });
  }
}

bool HoldingQueue::LaterThan(uint32_t a, uint32_t b) const noexcept {
  if (held_[a].due_ns != held_[b].due_ns) return held_[a].due_ns > held_[b].due_ns;
  return held_[a].order > held_[b].order;
}

}  // namespace hearth
