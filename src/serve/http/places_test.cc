#include "serve/http/places.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth::serve {
namespace {

class PlacesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Place> Take(const std::string& address) {
    const int number = next_++;
    return places_.Take(address, [this, number] { given_up_.push_back(number); });
  }

  Places places_{4, 3};
  int next_ = 0;
  std::vector<int> given_up_;
};

TEST_F(PlacesTest, TheLongestIdleMakesRoomThenTheLongestReading) {
  const auto a = Take("a"), b = Take("b"), c = Take("c"), d = Take("d");
  a->SetReading();
  c->SetReading();
  b->SetIdle();  // the newest of the idle ones
  EXPECT_EQ(places_.taken(), 4);
  const auto e = Take("e");
  e->SetAnswering();
  EXPECT_EQ(given_up_, std::vector<int>({3}));
  const auto f = Take("f");
  f->SetAnswering();
  EXPECT_EQ(given_up_, std::vector<int>({3, 1}));
  const auto g = Take("g");
  g->SetAnswering();
  EXPECT_EQ(given_up_, std::vector<int>({3, 1, 0}));
  EXPECT_FALSE(g->is_guest());
  EXPECT_EQ(places_.taken(), 4);
}

TEST_F(PlacesTest, AnAddressGivesUpItsOwn) {
  const auto other = Take("b");
  const auto first = Take("a"), second = Take("a"), third = Take("a");
  const auto fourth = Take("a");
  EXPECT_EQ(given_up_, std::vector<int>({1}));
  EXPECT_FALSE(fourth->is_guest());
  EXPECT_EQ(places_.taken(), 4);
}

TEST_F(PlacesTest, WhereAllAreAnsweringOthersAreGuests) {
  std::vector<std::unique_ptr<Place>> answering;
  for (const char* address : {"a", "b", "c", "d"}) {
    answering.push_back(Take(address));
    answering.back()->SetAnswering();
  }
  std::vector<std::unique_ptr<Place>> guests;
  for (int i = 0; i < Places::kMostGuests; ++i) {
    guests.push_back(Take("e"));
    EXPECT_TRUE(guests.back()->is_guest());
    guests.back()->SetAnswering();  // still a guest, and given up when there are others
  }
  EXPECT_TRUE(given_up_.empty());
  guests.push_back(Take("e"));
  EXPECT_EQ(given_up_, std::vector<int>({4}));
  EXPECT_EQ(places_.taken(), 4);
  answering.pop_back();
  EXPECT_EQ(places_.taken(), 3);
  EXPECT_FALSE(Take("e")->is_guest());
  guests.clear();
  answering.clear();
  EXPECT_EQ(places_.taken(), 0);
}

}  // namespace
}  // namespace hearth::serve
