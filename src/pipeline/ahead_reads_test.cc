#include "pipeline/ahead_reads.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth {
namespace {

// Reads these for an FFN; returns their places.
std::vector<int32_t> Begin(AheadReads& ahead, int64_t ffn, const std::vector<int32_t>& neurons) {
  ahead.Begin(ffn);
  std::vector<int32_t> places;
  for (const int32_t neuron : neurons) places.push_back(ahead.Add(neuron));
  return places;
}

TEST(AheadReadsTest, AListTakesWhatHasComeAndWaitsForTheRest) {
  AheadReads ahead(100, 4);
  const std::vector<int32_t> places = Begin(ahead, 7, {2, 5, 9, 11, 13});
  EXPECT_EQ(places.back(), -1) << "four at the most";
  EXPECT_EQ(ahead.slot(places[1]), 100 + places[1]);
  EXPECT_EQ(ahead.Arrived(places[1], true), -1);
  ahead.BeginList(7);
  EXPECT_EQ(ahead.Take(1, 0), -1);
  EXPECT_EQ(ahead.Take(2, 1), places[0]);
  EXPECT_FALSE(ahead.is_here(places[0]));
  EXPECT_EQ(ahead.Take(5, 2), places[1]);
  EXPECT_TRUE(ahead.is_here(places[1]));
  EXPECT_EQ(ahead.Take(12, 3), -1);
  EXPECT_EQ(ahead.Arrived(places[0], true), 1) << "its position";
  EXPECT_EQ(ahead.Arrived(places[2], true), -1) << "nobody asked";
  ahead.EndList();
}

TEST(AheadReadsTest, OtherListsTakeNothing) {
  AheadReads ahead(0, 4);
  Begin(ahead, 7, {2});
  ahead.BeginList(8);
  EXPECT_EQ(ahead.Take(2, 0), -1);
  ahead.EndList();
  ahead.BeginList(7);
  EXPECT_EQ(ahead.Take(2, 0), 0);
}

TEST(AheadReadsTest, WhatCouldNotBeReadIsReadAgain) {
  AheadReads ahead(0, 4);
  const std::vector<int32_t> places = Begin(ahead, 7, {2, 3});
  ahead.Arrived(places[0], false);
  ahead.BeginList(7);
  EXPECT_EQ(ahead.Take(2, 0), -1);
  EXPECT_EQ(ahead.Take(3, 1), places[1]);
}

TEST(AheadReadsTest, PlacesAreFreeOnceTheirReadsHaveEnded) {
  AheadReads ahead(0, 2);
  const std::vector<int32_t> first = Begin(ahead, 1, {4, 5});
  const std::vector<int32_t> second = Begin(ahead, 2, {4, 5});
  EXPECT_EQ(Begin(ahead, 3, {4, 5}), (std::vector<int32_t>{-1, -1})) << "all are being read";
  for (const int32_t place : first) EXPECT_EQ(ahead.Arrived(place, true), -1);
  const std::vector<int32_t> third = Begin(ahead, 4, {4, 5});
  EXPECT_EQ(third, first);
  // The others are used by a list while there is none for the next.
  for (const int32_t place : second) ahead.Arrived(place, true);
  for (const int32_t place : third) ahead.Arrived(place, true);
  ahead.BeginList(4);
  EXPECT_EQ(ahead.Take(4, 0), third[0]);
  EXPECT_EQ(Begin(ahead, 5, {6, 7}), second);
  ahead.EndList();
  EXPECT_EQ(Begin(ahead, 6, {8}), std::vector<int32_t>{first[0]});
}

}  // namespace
}  // namespace hearth
