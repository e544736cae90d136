#include "pass/device/device_pages.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace hearth {
namespace {

using Pages = std::vector<PageUse>;

TEST(DevicePages, CopiesWhatIsNotThere) {
  DevicePages pages(2);
  const Pages first = {{.birth = 7, .before = 0, .after = 10}};
  ASSERT_TRUE(pages.Begin(first, true));
  EXPECT_TRUE(pages.HasCopy(first[0])) << "nothing was there before";
  pages.End(first);
  const Pages on = {{.birth = 7, .before = 10, .after = 64}, {.birth = 8, .before = 0, .after = 3}};
  ASSERT_TRUE(pages.Begin(on, true));
  EXPECT_TRUE(pages.HasCopy(on[0]));
  EXPECT_NE(pages.SlotOf(on[0]), pages.SlotOf(on[1]));
  pages.End(on);
  // A page that only the host has written.
  const Pages other = {{.birth = 9, .before = 20, .after = 21}};
  ASSERT_TRUE(pages.Begin(other, true));
  EXPECT_FALSE(pages.HasCopy(other[0]));
  pages.Copied(other[0]);
  EXPECT_TRUE(pages.HasCopy(other[0]));
}

TEST(DevicePages, TokensThatAreWrittenAgainAreNotThere) {
  DevicePages pages(2);
  const Pages whole = {{.birth = 7, .before = 0, .after = 64}};
  ASSERT_TRUE(pages.Begin(whole, true));
  pages.End(whole);
  // Cut to 5 tokens, and filled up by the host or by a pass that failed.
  EXPECT_FALSE(pages.Begin({{{.birth = 7, .before = 5, .after = 50}}}, false));
  const Pages later = {{.birth = 7, .before = 50, .after = 51}};
  ASSERT_TRUE(pages.Begin(later, true));
  EXPECT_FALSE(pages.HasCopy(later[0]));
}

TEST(DevicePages, MorePagesThanSlotsAreNotThere) {
  DevicePages pages(2);
  const Pages three = {{.birth = 1}, {.birth = 2}, {.birth = 3}};
  EXPECT_FALSE(pages.Begin(three, true));
  const Pages twice = {{.birth = 1}, {.birth = 2}, {.birth = 1}};
  EXPECT_TRUE(pages.Begin(twice, true));
}

// Against a device that is played: what a slot holds is what was copied or written there.
TEST(DevicePages, SlotsHoldWhatTheySay) {
  constexpr int64_t kSlots = 6;
  DevicePages pages(kSlots);
  std::mt19937 random(3);
  const auto below = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<unsigned>(n));
  };
  std::map<uint64_t, int32_t> host;  // tokens of each page
  // By slot: the page and its tokens, each by the pass that wrote it last.
  struct Slot {
    uint64_t birth = 0;
    std::map<int32_t, int> tokens;
  };
  std::vector<Slot> device(kSlots);
  std::map<std::pair<uint64_t, int32_t>, int> written;  // on the host
  for (int pass = 1; pass < 3000; ++pass) {
    std::set<uint64_t> births;
    for (int i = below(8); i >= 0; --i) births.insert(1 + static_cast<uint64_t>(below(12)));
    Pages uses;
    for (const uint64_t birth : births) {
      const int32_t before = std::min(host[birth], below(65));
      uses.push_back({.birth = birth, .before = before, .after = before + below(65 - before)});
    }
    const bool there = pages.Begin(uses, below(5) > 0);
    ASSERT_LE(there ? uses.size() : 0, kSlots);
    const bool fails = below(6) == 0;
    std::set<int32_t> taken;
    for (const PageUse& use : uses) {
      if (there) {
        Slot& slot = device[static_cast<size_t>(pages.SlotOf(use))];
        ASSERT_TRUE(taken.insert(pages.SlotOf(use)).second) << "a slot of two pages";
        if (!pages.HasCopy(use)) {
          slot = {use.birth, {}};
          for (int32_t t = 0; t < use.before; ++t) slot.tokens[t] = written[{use.birth, t}];
          pages.Copied(use);
        }
        if (slot.birth != use.birth) slot = {use.birth, {}};
        for (int32_t t = 0; t < use.before; ++t) {
          ASSERT_EQ(slot.tokens[t], (written[{use.birth, t}])) << "token " << t;
        }
        for (int32_t t = use.before; t < use.after; ++t) slot.tokens[t] = pass;
      }
      for (int32_t t = use.before; t < use.after && !fails; ++t) written[{use.birth, t}] = pass;
      host[use.birth] = fails ? use.before : use.after;
    }
    if (there && !fails) pages.End(uses);
  }
}

}  // namespace
}  // namespace hearth
