#include "serve/http/places.h"

#include <utility>

namespace hearth::serve {

Place::Place(Places& places, std::string address, std::function<void()> give_up)
    : places_(places), address_(std::move(address)), give_up_(std::move(give_up)) {}

Place::~Place() { Leave(); }

void Place::Enter(List* list) {
  if (has_left_) return;
  if (is_guest_) list = &places_.guests_;
  if (list_ != nullptr) list_->erase(at_);
  list_ = list;
  if (list != nullptr) at_ = list->insert(list->end(), this);
}

void Place::SetIdle() { Enter(&places_.idle_); }
void Place::SetReading() { Enter(&places_.reading_); }
void Place::SetAnswering() { Enter(nullptr); }

void Place::Leave() {
  if (has_left_) return;
  if (list_ != nullptr) list_->erase(at_);
  list_ = nullptr;
  has_left_ = true;
  if (is_guest_) return;
  --places_.taken_;
  const auto found = places_.by_address_.find(address_);
  if (--found->second == 0) places_.by_address_.erase(found);
}

void Places::GiveUp(Place& place) {
  place.Leave();                        // its connection may live a while longer
  const auto give_up = place.give_up_;  // which may end the place
  give_up();
}

bool Places::GiveUpOldest(Place::List& list, const std::string* address) {
  for (Place* const place : list) {
    if (address != nullptr && place->address_ != *address) continue;
    GiveUp(*place);
    return true;
  }
  return false;
}

bool Places::MakeRoom(const std::string* address) {
  return GiveUpOldest(idle_, address) || GiveUpOldest(reading_, address);
}

std::unique_ptr<Place> Places::Take(const std::string& address, std::function<void()> give_up) {
  std::unique_ptr<Place> place(new Place(*this, address, std::move(give_up)));
  const auto of_it = by_address_.find(address);
  const bool address_is_full = of_it != by_address_.end() && of_it->second >= of_address_;
  if (address_is_full) {
    place->is_guest_ = !MakeRoom(&address);
  } else if (taken_ >= all_) {
    place->is_guest_ = !MakeRoom(nullptr);
  }
  if (place->is_guest_) {
    if (static_cast<int>(guests_.size()) >= kMostGuests) GiveUpOldest(guests_, nullptr);
  } else {
    ++taken_;
    ++by_address_[address];
  }
  place->SetIdle();
  return place;
}

}  // namespace hearth::serve
