#include "pass/device/device_pages.h"

#include <algorithm>

namespace hearth {

bool DevicePages::Begin(std::span<const PageUse> pages, bool is_wanted) {
  ++pass_;
  for (const PageUse& page : pages) {
    const auto found = copies_.find(page.birth);
    if (found == copies_.end()) continue;
    found->second.tokens = std::min(found->second.tokens, page.before);
    found->second.used = pass_;
  }
  if (!is_wanted) return false;
  std::vector<uint64_t> births;
  for (const PageUse& page : pages) births.push_back(page.birth);
  std::sort(births.begin(), births.end());
  births.erase(std::unique(births.begin(), births.end()), births.end());
  if (std::ssize(births) > slots()) return false;
  for (const uint64_t birth : births) {
    if (copies_.contains(birth)) continue;
    const int32_t slot = TakeSlot();
    birth_of_slot_[static_cast<size_t>(slot)] = birth;
    copies_[birth] = {.slot = slot, .tokens = 0, .used = pass_};
  }
  return true;
}

int32_t DevicePages::TakeSlot() {
  size_t best = 0;
  uint64_t best_used = UINT64_MAX;
  for (size_t slot = 0; slot < birth_of_slot_.size(); ++slot) {
    const uint64_t birth = birth_of_slot_[slot];
    const uint64_t used = birth == 0 ? 0 : copies_.at(birth).used;
    if (used >= best_used) continue;
    best = slot;
    best_used = used;
  }
  if (birth_of_slot_[best] != 0) copies_.erase(birth_of_slot_[best]);
  return static_cast<int32_t>(best);
}

void DevicePages::End(std::span<const PageUse> pages) {
  for (const PageUse& page : pages) copies_.at(page.birth).tokens = page.after;
}

}  // namespace hearth
