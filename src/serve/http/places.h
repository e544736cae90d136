// Who may stay connected: places for connections, all together and of one address.
//
// A new connection always gets a place while there is one that nobody would miss: where all are
// taken, or all that one address may have, the connection that has waited for a request for longest
// is given up, else the one that has been sending one for longest. Where every place is answering,
// the new one is a guest: it may ask how the server is.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

namespace hearth::serve {

class Places;

// Of one connection, while it lives. Used on the server's thread.
class Place {
 public:
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  bool is_guest() const { return is_guest_; }
  // What the connection does from now on: waits, reads a request, or answers one.
  void SetIdle();
  void SetReading();
  void SetAnswering();

 private:
  friend class Places;
  using List = std::list<Place*>;
  Place(Places& places, std::string address, std::function<void()> give_up);
  void Enter(List* list);
  void Leave();

  Places& places_;
  const std::string address_;
  const std::function<void()> give_up_;
  bool is_guest_ = false;
  bool has_left_ = false;
  List* list_ = nullptr;  // that it is in; null: it is answering
  List::iterator at_;
};

// Outlives its places.
class Places {
 public:
  static constexpr int kMostGuests = 32;

  // of_address: the most that one address may have.
  Places(int all, int of_address) : all_(all), of_address_(of_address) {}

  // give_up: ends the connection at once; called at most once, from Take.
  std::unique_ptr<Place> Take(const std::string& address, std::function<void()> give_up);
  int taken() const { return taken_; }

 private:
  friend class Place;
  bool GiveUpOldest(Place::List& list, const std::string* address);
  bool MakeRoom(const std::string* address);
  static void GiveUp(Place& place);

  const int all_;
  const int of_address_;
  int taken_ = 0;                          // but for guests
  std::map<std::string, int> by_address_;  // the same
  Place::List idle_, reading_, guests_;    // each with the oldest first
};

}  // namespace hearth::serve
