#include "kv/kv_uses.h"

#include <atomic>
#include <tuple>

namespace hearth {

uint64_t KvUses::NextBirth() {
  static std::atomic<uint64_t> births = 0;
  return ++births;
}

KvPageId KvUses::Coldest(std::span<const KvPageId> pages) const {
  KvPageId coldest = kNoKvPage;
  std::tuple<bool, uint64_t, uint64_t> best;
  for (const KvPageId page : pages) {
    if (page == kNoKvPage) continue;
    const History& history = pages_[Index(page)];
    if (history.written == pass_) continue;
    const std::tuple rank(!history.is_full, history.used, history.born);
    if (coldest != kNoKvPage && !(rank < best)) continue;
    coldest = page;
    best = rank;
  }
  return coldest;
}

}  // namespace hearth
