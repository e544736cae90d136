// Neurons that are read before their FFN's turn, on a guess of its list
// (docs/decisions/0014-lookahead.md): where they are put, and which of them have come. They have
// slots of their own, so that the cache does not see what was read in vain.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth {

// Knows no bytes. One thread at a time.
class AheadReads {
 public:
  // For up to `most` neurons of an FFN, in the 2 * most slots from first_slot on: those of one FFN
  // are used while others are read for the next.
  AheadReads(int32_t first_slot, int64_t most);

  int64_t most() const { return most_; }

  // Begins to read for `ffn`; what was read for another and not taken is given up.
  void Begin(int64_t ffn);
  // Where to read this neuron to, as an index; -1 where no place is free. Ascending.
  int32_t Add(int32_t neuron);
  // The read of a place ended. Returns the position that waits for it; -1: nobody does yet.
  int32_t Arrived(int32_t place, bool is_good);

  // For the list of an FFN, its neurons in ascending order from BeginList on: the place that one of
  // them was read ahead to, which stays taken until EndList; -1: nowhere. Where the read has not
  // ended (is_here), Arrived returns `position`.
  void BeginList(int64_t ffn);
  int32_t Take(int32_t neuron, int32_t position);
  void EndList();
  bool is_here(int32_t place) const {
    return places_[static_cast<size_t>(place)].state == State::kTaken;
  }

  int32_t slot(int32_t place) const { return first_slot_ + place; }

 private:
  enum class State : uint8_t { kFree, kReading, kHere, kTaken, kTakenReading };
  struct Place {
    int32_t neuron = -1;
    int32_t position = -1;
    State state = State::kFree;
    bool is_given_up = false;  // free as soon as its read has ended
  };

  static void GiveUp(Place& place);

  const int32_t first_slot_;
  const int64_t most_;
  std::vector<Place> places_;
  std::vector<int32_t> planned_;  // places of the FFN that is read for, neurons ascending
  std::vector<int32_t> listed_;   // of the list
  size_t next_listed_ = 0;
  size_t next_place_ = 0;  // where Add looks on
  int64_t ffn_ = -1;       // that is read for
  int64_t list_ffn_ = -1;
};

}  // namespace hearth
