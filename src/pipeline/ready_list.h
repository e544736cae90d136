// The neurons of a list in the order in which they may be computed.
#pragma once

#include <atomic>
#include <cstdint>

namespace hearth {

// What is in the slot of a neuron that is ready. Halves only where slots are whole bundles.
enum class ReadyState : uint8_t {
  kHere,      // all that the list needs, checked when it was read
  kRead,      // all of it, just read
  kGateHere,  // the gate half alone
  kGateRead,  // the gate half alone, just read
  kRestRead,  // the other half, just read: the gate was ready before
};
constexpr bool WasRead(ReadyState state) {
  return state != ReadyState::kHere && state != ReadyState::kGateHere;
}
constexpr bool IsGateAlone(ReadyState state) {
  return state == ReadyState::kGateHere || state == ReadyState::kGateRead;
}

// Entries are positions in the list, each with its state. One thread at a time calls Begin, Add and
// Publish; any thread may call the rest, and read the entries below size().
class ReadyList {
 public:
  // Where entries lie. The memory is the caller's and must have room for all that is added.
  void SetMemory(int32_t* positions, ReadyState* states) {
    positions_ = positions;
    states_ = states;
  }
  // Starts anew, with nothing ready once Publish is called, and this many entries to come.
  void Begin(int64_t num_expected) noexcept {
    num_added_ = 0;
    num_expected_ = num_expected;
  }
  // Expects this many more. Before what adds them is asked for.
  void ExpectMore(int64_t count) noexcept {
    num_expected_.fetch_add(count, std::memory_order_release);
  }
  void Add(int32_t position, ReadyState state) noexcept {
    positions_[num_added_] = position;
    states_[num_added_++] = state;
  }
  // Shows all that was added to other threads.
  void Publish() noexcept { size_.store(num_added_, std::memory_order_release); }

  const int32_t* positions() const { return positions_; }
  const ReadyState* states() const { return states_; }
  int64_t size() const { return size_.load(std::memory_order_acquire); }
  // Whether more will be ready than are.
  bool is_awaiting() const { return size() < num_expected_.load(std::memory_order_acquire); }

 private:
  int32_t* positions_ = nullptr;
  ReadyState* states_ = nullptr;
  int64_t num_added_ = 0;
  std::atomic<int64_t> size_{0};
  std::atomic<int64_t> num_expected_{0};
};

}  // namespace hearth
