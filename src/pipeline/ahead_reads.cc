#include "pipeline/ahead_reads.h"

#include <utility>

namespace hearth {

AheadReads::AheadReads(int32_t first_slot, int64_t most)
    : first_slot_(first_slot), most_(most), places_(static_cast<size_t>(2 * most)) {
  planned_.reserve(places_.size());
  listed_.reserve(places_.size());
}

void AheadReads::GiveUp(Place& place) {
  place.is_given_up = place.state == State::kReading || place.state == State::kTakenReading;
  place.state = place.is_given_up ? State::kReading : State::kFree;
}

void AheadReads::Begin(int64_t ffn) {
  for (const int32_t place : planned_) {
    GiveUp(places_[static_cast<size_t>(place)]);
  }
  planned_.clear();
  ffn_ = ffn;
  next_place_ = 0;
}

int32_t AheadReads::Add(int32_t neuron) {
  if (std::ssize(planned_) == most_) return -1;
  while (next_place_ < places_.size()) {
    const size_t i = next_place_++;
    if (places_[i].state != State::kFree) continue;
    places_[i] = {.neuron = neuron, .state = State::kReading};
    planned_.push_back(static_cast<int32_t>(i));
    return static_cast<int32_t>(i);
  }
  return -1;
}

int32_t AheadReads::Arrived(int32_t place, bool is_good) {
  Place& one = places_[static_cast<size_t>(place)];
  if (one.state == State::kTakenReading) {
    one.state = State::kTaken;
    return one.position;
  }
  // What could not be read ahead is read again by whoever needs it.
  if (!is_good) one.neuron = -1;
  one.state = one.is_given_up ? State::kFree : State::kHere;
  return -1;
}

void AheadReads::BeginList(int64_t ffn) {
  listed_.clear();
  next_listed_ = 0;
  if (ffn != ffn_) return;
  std::swap(listed_, planned_);
  list_ffn_ = ffn;
  ffn_ = -1;
}

int32_t AheadReads::Take(int32_t neuron, int32_t position) {
  const auto at = [&]() -> Place& { return places_[static_cast<size_t>(listed_[next_listed_])]; };
  while (next_listed_ < listed_.size() && at().neuron < neuron) ++next_listed_;
  if (next_listed_ == listed_.size() || at().neuron != neuron) return -1;
  Place& place = at();
  place.position = position;
  place.state = place.state == State::kHere ? State::kTaken : State::kTakenReading;
  return listed_[next_listed_++];
}

void AheadReads::EndList() {
  // The FFN may have another list, as long as nothing is read for the next.
  const bool keeps = ffn_ < 0 && !listed_.empty();
  if (keeps) ffn_ = list_ffn_;
  for (const int32_t place : listed_) {
    Place& one = places_[static_cast<size_t>(place)];
    const bool is_taken = one.state == State::kTaken || one.state == State::kTakenReading;
    if (keeps && !is_taken) {
      planned_.push_back(place);
    } else {
      GiveUp(one);
    }
  }
  listed_.clear();
  next_listed_ = 0;
}

}  // namespace hearth
