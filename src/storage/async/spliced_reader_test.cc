#include "storage/async/spliced_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace hearth {
namespace {

std::vector<std::byte> Numbered(size_t count, int first) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return bytes;
}

SplicedReader TwoSources() {
  std::vector<std::unique_ptr<BlockReader>> sources;
  sources.push_back(MakeMemoryReader("a", Numbered(100, 0)));
  sources.push_back(MakeMemoryReader("b", Numbered(60, 100)));
  return SplicedReader("both", std::move(sources));
}

TEST(SplicedReaderTest, AnyRangeIsThatOfTheWhole) {
  SplicedReader reader = TwoSources();
  reader.Append({.source = 1, .begin = 10, .bytes = 7});
  reader.AppendZeros(5);
  reader.Append({.source = 0, .begin = 0, .bytes = 0});
  // Rows of 3 bytes in groups of 4: 0, 2, 1, 3, then 4, 6, 5, 7.
  reader.Append({.source = 0, .begin = 20, .bytes = 24, .row_bytes = 3, .group_rows = 4});
  reader.Append({.source = 0, .begin = 90, .bytes = 10});
  std::vector<std::byte> expected = Numbered(7, 110);
  expected.resize(12);
  for (const int row : {0, 2, 1, 3, 4, 6, 5, 7}) {
    for (const std::byte b : Numbered(3, 20 + 3 * row)) expected.push_back(b);
  }
  for (const std::byte b : Numbered(10, 90)) expected.push_back(b);
  ASSERT_EQ(reader.size_bytes(), expected.size());
  for (size_t begin = 0; begin <= expected.size(); ++begin) {
    for (size_t end = begin; end <= expected.size(); ++end) {
      std::vector<std::byte> found(end - begin, std::byte{0xff});
      reader.ReadAt(begin, found);
      ASSERT_EQ(found, std::vector<std::byte>(expected.begin() + static_cast<int64_t>(begin),
                                              expected.begin() + static_cast<int64_t>(end)));
      reader.WillRead(begin, end - begin);
      reader.DropCached(begin, end - begin);
    }
  }
  std::vector<std::byte> one(1);
  EXPECT_THROW(reader.ReadAt(expected.size(), one), Error);
  EXPECT_THROW(reader.ReadAt(UINT64_MAX, one), Error);
}

TEST(SplicedReaderTest, RangesOutsideAreRefused) {
  SplicedReader reader = TwoSources();
  EXPECT_THROW(reader.Append({.source = 2, .bytes = 1}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .begin = 95, .bytes = 6}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .begin = UINT64_MAX, .bytes = 2}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .bytes = 10, .row_bytes = 3, .group_rows = 2}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .bytes = 9, .row_bytes = 3, .group_rows = 3}), Error);
  EXPECT_THROW(reader.Append({.source = 0, .bytes = 9, .row_bytes = 3, .group_rows = 0}), Error);
}

}  // namespace
}  // namespace hearth
