#include "storage/slot_queue.h"

#include <algorithm>
#include <array>

namespace hearth {

SlotQueue::SlotQueue(const OpenedFile& file, const QueueOptions& options)
    : file_(file),
      dropper_(file),
      capacity_(options.capacity),
      slots_(static_cast<size_t>(options.depth)),
      waiting_(options.capacity),
      failed_(options.capacity) {
  free_slots_.reserve(slots_.size());
  for (size_t i = slots_.size(); i-- > 0;) free_slots_.push_back(static_cast<uint32_t>(i));
}

size_t SlotQueue::Submit(std::span<const ReadRequest> requests) noexcept {
  const size_t taken = std::min(requests.size(), capacity_ - in_flight_);
  for (const ReadRequest& request : requests.first(taken)) {
    const int error = CheckRequest(file_.limits, request);
    if (error == 0) {
      waiting_.Push(request);
    } else {
      failed_.Push({request.tag, error});
    }
  }
  in_flight_ += taken;
  StartWaiting();
  Flush();
  return taken;
}

size_t SlotQueue::Poll(std::span<ReadCompletion> completions) noexcept {
  return Collect(completions, false);
}

size_t SlotQueue::Wait(std::span<ReadCompletion> completions) noexcept {
  return Collect(completions, true);
}

size_t SlotQueue::Collect(std::span<ReadCompletion> completions, bool block) noexcept {
  if (completions.empty() || in_flight_ == 0) return 0;
  size_t count = 0;
  for (;;) {
    while (count < completions.size() && !failed_.empty()) completions[count++] = failed_.Pop();
    if (count < completions.size() && running() > 0) {
      count += Reap(completions.subspan(count), block && count == 0);
    }
    StartWaiting();
    if (count > 0 || !block) break;
  }
  Flush();
  in_flight_ -= count;
  return count;
}

void SlotQueue::StartWaiting() noexcept {
  while (!waiting_.empty() && !free_slots_.empty()) {
    const uint32_t index = free_slots_.back();
    free_slots_.pop_back();
    slots_[index].Begin(waiting_.Pop(), file_.limits);
    Start(index);
  }
}

bool SlotQueue::Advance(uint32_t index, int64_t result, ReadCompletion* completion) noexcept {
  switch (slots_[index].Advance(result, file_.limits)) {
    case ReadStep::kAgain:
      Start(index);
      return false;
    case ReadStep::kDone:
      Finish(index, 0, completion);
      return true;
    case ReadStep::kFailed:
      Finish(index, slots_[index].error, completion);
      return true;
  }
  return false;
}

void SlotQueue::Finish(uint32_t index, int error, ReadCompletion* completion) noexcept {
  const ReadProgress& read = slots_[index];
  dropper_.Note(read.begin, read.end);
  *completion = {read.tag, error};
  free_slots_.push_back(index);
}

void SlotQueue::Fail(uint32_t index, int error) noexcept {
  ReadCompletion completion;
  Finish(index, error, &completion);
  failed_.Push(completion);
}

void SlotQueue::Drain() noexcept {
  waiting_.Clear();
  std::array<ReadCompletion, 16> ignored;
  while (running() > 0) Reap(ignored, true);
}

}  // namespace hearth
