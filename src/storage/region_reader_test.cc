#include "storage/region_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"

namespace hearth {
namespace {

std::vector<std::byte> Numbered(size_t count, int first) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return bytes;
}

std::vector<std::byte> RandomBytes(size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

RegionReader ReaderOf(std::vector<std::byte> a, std::vector<std::byte> b) {
  std::vector<std::unique_ptr<BlockReader>> sources;
  sources.push_back(MakeMemoryReader("a", std::move(a)));
  sources.push_back(MakeMemoryReader("b", std::move(b)));
  return RegionReader("both", std::move(sources));
}

void Check(const RegionReader& reader, const std::vector<std::byte>& expected, size_t begin,
           size_t end) {
  std::vector<std::byte> found(end - begin, std::byte{0xff});
  reader.ReadAt(begin, found);
  ASSERT_TRUE(
      std::equal(found.begin(), found.end(), expected.begin() + static_cast<int64_t>(begin)))
      << begin << " to " << end;
  reader.WillRead(begin, end - begin);
  reader.DropCached(begin, end - begin);
}

TEST(RegionReaderTest, AnyRangeIsThatOfTheWhole) {
  RegionReader reader = ReaderOf(Numbered(100, 0), Numbered(60, 100));
  reader.Append({.source = 1, .from = 10, .bytes = 7});
  reader.AppendZeros(5);
  reader.Append({.source = 0, .from = 0, .bytes = 0});
  // Heads of four rows of 3 bytes: 0, 2, 1, 3, then 4, 6, 5, 7.
  reader.Append({.source = 0, .from = 20, .bytes = 3, .loops = {{{2, 12}, {2, 3}, {2, 6}}}});
  reader.Append({.source = 0, .from = 90, .bytes = 10});
  std::vector<std::byte> expected = Numbered(7, 110);
  expected.resize(12);
  for (const int row : {0, 2, 1, 3, 4, 6, 5, 7}) {
    for (const std::byte b : Numbered(3, 20 + 3 * row)) expected.push_back(b);
  }
  for (const std::byte b : Numbered(10, 90)) expected.push_back(b);
  ASSERT_EQ(reader.size_bytes(), expected.size());
  for (size_t begin = 0; begin <= expected.size(); ++begin) {
    for (size_t end = begin; end <= expected.size(); ++end) Check(reader, expected, begin, end);
  }
  std::vector<std::byte> one(1);
  EXPECT_THROW(reader.ReadAt(expected.size(), one), Error);
  EXPECT_THROW(reader.ReadAt(UINT64_MAX, one), Error);
}

// Regions of any shape, with runs that are read with what is between them, by themselves, and
// across columns, beside the definition.
TEST(RegionReaderTest, RandomRegionsAreReadAsDefined) {
  std::mt19937 random(3);
  const auto up_to = [&](uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < 300; ++round) {
    const std::vector<std::byte> a = RandomBytes(200'000, random);
    RegionReader reader = ReaderOf(a, {});
    std::vector<std::byte> expected;
    for (int piece = 0; piece < 3; ++piece) {
      const uint64_t bytes = std::array<uint64_t, 6>{1, 2, 4, 7, 511, 600}[up_to(5)];
      Region region = {.from = up_to(100), .bytes = bytes};
      uint64_t step = bytes + (up_to(1) == 0 ? up_to(9) : 0);
      std::array<size_t, 3> order = {0, 1, 2};
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) {
        region.loops[i] = {1 + up_to(bytes > 100 ? 4 : 20), step, 0};
        step *= region.loops[i].count;
      }
      const auto& [x, y, z] = region.loops;
      for (uint64_t i = 0; i < x.count; ++i) {
        for (uint64_t j = 0; j < y.count; ++j) {
          for (uint64_t k = 0; k < z.count; ++k) {
            const uint64_t at = region.from + i * x.from_step + j * y.from_step + k * z.from_step;
            for (uint64_t byte = 0; byte < bytes; ++byte) expected.push_back(a[at + byte]);
          }
        }
      }
      reader.Append(region);
    }
    ASSERT_EQ(reader.size_bytes(), expected.size());
    Check(reader, expected, 0, expected.size());
    for (int range = 0; range < 20; ++range) {
      const size_t begin = up_to(expected.size()), end = begin + up_to(expected.size() - begin);
      Check(reader, expected, begin, end);
    }
  }
}

// What lies in a source as it is appended is one region and one read.
TEST(RegionReaderTest, NeighboursAreJoined) {
  RegionReader reader = ReaderOf(Numbered(96, 0), Numbered(10, 0));
  for (uint64_t expert = 0; expert < 4; ++expert) reader.Append({.from = 8 * expert, .bytes = 8});
  EXPECT_EQ(reader.num_regions(), 1u);
  for (uint64_t expert = 0; expert < 4; ++expert) {
    reader.Append({.from = 40 + 12 * expert, .bytes = 6});
  }
  EXPECT_EQ(reader.num_regions(), 2u);
  reader.AppendZeros(6);
  reader.Append({.source = 1, .bytes = 6});
  EXPECT_EQ(reader.num_regions(), 4u);
  std::vector<std::byte> expected = Numbered(32, 0);
  for (const int first : {40, 52, 64, 76}) {
    for (const std::byte b : Numbered(6, first)) expected.push_back(b);
  }
  expected.resize(expected.size() + 6);
  for (const std::byte b : Numbered(6, 0)) expected.push_back(b);
  Check(reader, expected, 0, expected.size());
}

TEST(RegionReaderTest, RegionsOutsideAreRefused) {
  RegionReader reader = ReaderOf(Numbered(100, 0), Numbered(60, 100));
  EXPECT_THROW(reader.Append({.source = 2, .bytes = 1}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .from = 95, .bytes = 6}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .from = UINT64_MAX, .bytes = 2}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .bytes = 10, .loops = {{{10, 11}}}}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .bytes = 1, .loops = {{{UINT64_MAX}, {2}}}}), Error);
  reader.Append({.source = 0, .bytes = 10, .loops = {{{10, 10}}}});
  EXPECT_EQ(reader.size_bytes(), 100u);
}

}  // namespace
}  // namespace hearth
