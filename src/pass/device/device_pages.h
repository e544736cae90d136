// Which KV pages a device has copies of. A copy lies in a slot, for all layers that have keys and
// values on the device. When slots run out, the least recently used copies are dropped.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace hearth {

// A page in a pass.
struct PageUse {
  uint64_t birth = 0;  // KvSequence::BirthOf
  int32_t before = 0;  // of its tokens, so many were there before the pass,
  int32_t after = 0;   // and so many will be when it ends
};

// Keeps the books and copies nothing itself. One thread at a time. For a pass call Begin and, if it
// returned true, SlotOf, HasCopy and Copied, and at last End. After a pass that failed, call Begin
// of the next one.
class DevicePages {
 public:
  explicit DevicePages(int64_t slots) : birth_of_slot_(static_cast<size_t>(slots), 0) {}

  int64_t slots() const { return std::ssize(birth_of_slot_); }

  // A pass begins. It writes the tokens of each page from `before` on, so that copies of those are
  // stale. If copies are wanted and there are slots enough, gives every page a slot and returns
  // true. A page may be listed twice, with the same numbers.
  bool Begin(std::span<const PageUse> pages, bool is_wanted);
  // Of a page of the pass.
  int32_t SlotOf(const PageUse& page) const { return copies_.at(page.birth).slot; }
  // Whether its slot has the tokens that were there before the pass.
  bool HasCopy(const PageUse& page) const { return copies_.at(page.birth).tokens >= page.before; }
  // It has them now.
  void Copied(const PageUse& page) { copies_.at(page.birth).tokens = page.before; }
  // The pass has written its tokens there.
  void End(std::span<const PageUse> pages);

 private:
  struct Copy {
    int32_t slot = 0;
    int32_t tokens = 0;  // the first ones, that the slot has
    uint64_t used = 0;   // the pass that used it last
  };

  // A slot that no page of the pass has.
  int32_t TakeSlot();

  std::unordered_map<uint64_t, Copy> copies_;  // by birth
  std::vector<uint64_t> birth_of_slot_;        // 0: of none
  uint64_t pass_ = 0;
};

}  // namespace hearth
