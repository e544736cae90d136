// Which KV pages a device has copies of: each is in a slot there, of all layers that have keys and
// values there, and the least lately used leave theirs for others.
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

// Knows numbers alone. One thread at a time. Calls of a pass come as Begin and, where it returned
// true, SlotOf and HasCopy, Copied, and at last End; after a pass that failed with the next Begin.
class DevicePages {
 public:
  explicit DevicePages(int64_t slots) : birth_of_slot_(static_cast<size_t>(slots), 0) {}

  int64_t slots() const { return std::ssize(birth_of_slot_); }

  // The pass writes tokens from `before` on: copies of them are of no use any more. Where it is
  // wanted and all pages fit, each has a slot from now on. A page may be there twice, with the same
  // numbers. Returns whether they have.
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
