// Which pages of a KV cache were used last: those that were not leave memory first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth {

using KvPageId = int32_t;
inline constexpr KvPageId kNoKvPage = -1;

// Times are passes. Not thread-safe, but several objects may be used by as many threads.
class KvUses {
 public:
  // A page that was not used for so many passes gives its memory to one that is.
  static constexpr uint64_t kColdPasses = 32;

  explicit KvUses(int64_t pages) : pages_(static_cast<size_t>(pages)) {}

  void BeginPass() { ++pass_; }
  // A sequence has taken the page.
  void Born(KvPageId page) { At(page) = {.born = NextBirth(), .used = pass_}; }
  // A number that is unique in the program: a page that is given up and taken again has another.
  uint64_t BirthOf(KvPageId page) const { return pages_[Index(page)].born; }
  // The pass reads it; writes into it, after which all of its tokens are there or not.
  void Used(KvPageId page) { At(page).used = pass_; }
  void Written(KvPageId page, bool is_full) {
    At(page).written = pass_;
    At(page).is_full = is_full;
  }

  bool IsCold(KvPageId page) const { return pages_[Index(page)].used + kColdPasses < pass_; }
  // Of `pages`, the page to leave memory first: full ones before those that will be written into,
  // then those that were used least lately, then the oldest. Not one that the pass writes into.
  // kNoKvPage where there is none.
  KvPageId Coldest(std::span<const KvPageId> pages) const;

 private:
  struct History {
    uint64_t born = 0;
    uint64_t used = 0;
    uint64_t written = 0;
    bool is_full = false;
  };

  // Ascending.
  static uint64_t NextBirth();
  static size_t Index(KvPageId page) { return static_cast<size_t>(page); }
  History& At(KvPageId page) { return pages_[Index(page)]; }

  std::vector<History> pages_;
  uint64_t pass_ = 1;
};

}  // namespace hearth
