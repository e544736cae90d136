#include "storage/async/slot_queue.h"

#include <algorithm>
#include <array>

namespace hearth {
namespace {

// Of requests that are read together.
constexpr uint64_t kMostTogetherBytes = uint64_t{1} << 20;

}  // namespace

SlotQueue::SlotQueue(const OpenedFile& file, const QueueOptions& options)
    : file_(file),
      dropper_(file),
      capacity_(options.capacity),
      slots_(static_cast<size_t>(options.depth)),
      waiting_(options.capacity),
      separated_(options.merge_gap_bytes ? options.capacity : 0),
      ended_(options.capacity),
      merge_gap_bytes_(options.merge_gap_bytes) {
  if (merge_gap_bytes_) {
    groups_.resize(slots_.size());
    gap_memory_ = Buffer(gap_budget_, "gaps", std::max<uint32_t>(*merge_gap_bytes_, 1));
  }
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
      ended_.Push({request.tag, error});
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
    count += TakeEnded(completions.subspan(count));
    if (count < completions.size() && running() > 0) {
      count += Reap(completions.subspan(count), block && count == 0);
      count += TakeEnded(completions.subspan(count));
    }
    StartWaiting();
    if (count > 0 || !block) break;
  }
  Flush();
  in_flight_ -= count;
  return count;
}

size_t SlotQueue::TakeEnded(std::span<ReadCompletion> completions) noexcept {
  size_t count = 0;
  while (count < completions.size() && !ended_.empty()) completions[count++] = ended_.Pop();
  return count;
}

void SlotQueue::StartWaiting() noexcept {
  while (!free_slots_.empty() && !(separated_.empty() && waiting_.empty())) {
    const uint32_t index = free_slots_.back();
    free_slots_.pop_back();
    if (!separated_.empty()) {
      slots_[index].Begin(separated_.Pop(), file_.limits);
    } else {
      slots_[index].Begin(waiting_.Pop(), file_.limits);
      if (merge_gap_bytes_) Gather(index);
    }
    Start(index);
  }
}

// Takes those that wait behind a slot's request, in the file too, into the same read.
void SlotQueue::Gather(uint32_t index) noexcept {
  ReadProgress& read = slots_[index];
  Group& group = groups_[index];
  group.requests[0] = {read.offset, read.data, read.bytes, read.tag};  // begun, so no guess
  group.num_requests = 1;
  group.num_pieces = 0;
  group.Add(read.data, read.bytes);
  FixedRing<ReadRequest>& neighbours = waiting_.next();
  while (!neighbours.empty() && group.num_requests < kMostTogether) {
    const ReadRequest& next = neighbours[0];
    if (next.offset < read.end || next.offset - read.end > *merge_gap_bytes_ ||
        next.offset + next.bytes - read.begin > kMostTogetherBytes) {
      break;
    }
    const uint64_t gap = next.offset - read.end;
    if (gap > 0) group.Add(gap_memory_.data(), gap);
    group.Add(next.data, next.bytes);
    gap_bytes_ += gap;
    read.end = next.offset + next.bytes;
    group.requests[group.num_requests++] = neighbours.Pop();
  }
  if (group.num_requests == 1) {
    group.num_requests = group.num_pieces = 0;
    return;
  }
  read.bytes = static_cast<uint32_t>(read.end - read.begin);
  read.needed = static_cast<uint32_t>(std::min(read.end, file_.limits.size_bytes) - read.begin);
}

// Leaves a group's slot to its first request; the others go on alone.
void SlotQueue::Separate(uint32_t index) noexcept {
  Group& group = groups_[index];
  for (size_t i = 1; i < group.num_requests; ++i) separated_.Push(group.requests[i]);
  slots_[index].Begin(group.requests[0], file_.limits);
  group.num_requests = group.num_pieces = 0;
}

bool SlotQueue::Advance(uint32_t index, int64_t result, ReadCompletion* completion) noexcept {
  if (!pieces(index).empty()) {
    if (result >= int64_t{slots_[index].needed}) {
      Finish(index, 0, completion);
      return true;
    }
    Separate(index);
    Start(index);
    return false;
  }
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
  if (!pieces(index).empty()) {
    Group& group = groups_[index];
    for (size_t i = 1; i < group.num_requests; ++i) ended_.Push({group.requests[i].tag, error});
    group.num_requests = group.num_pieces = 0;
  }
  free_slots_.push_back(index);
}

void SlotQueue::Fail(uint32_t index, int error) noexcept {
  ReadCompletion completion;
  Finish(index, error, &completion);
  ended_.Push(completion);
}

void SlotQueue::Drain() noexcept {
  waiting_.Clear();
  std::array<ReadCompletion, 16> ignored;
  while (running() > 0) {
    Reap(ignored, true);
    separated_.Clear();
  }
}

}  // namespace hearth
