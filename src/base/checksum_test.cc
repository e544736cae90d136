#include "base/checksum.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth {
namespace {

TEST(ChecksumTest, PiecesAddUpToTheWhole) {
  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  for (const size_t cut : {0u, 1u, 239u, 240u, 999u, 1000u}) {
    ChecksumStream sum;
    sum.Update(std::span(bytes).first(cut));
    sum.Update(std::span(bytes).subspan(cut));
    EXPECT_EQ(sum.Digest(), Checksum(bytes)) << cut;
  }
  ChecksumStream sum;
  sum.Update(bytes);
  sum.Restart();
  EXPECT_EQ(sum.Digest(), Checksum({}));
  const uint64_t before = Checksum(bytes);
  bytes[500] ^= std::byte{1};
  EXPECT_NE(Checksum(bytes), before);
}

TEST(ChecksumTest, Xxh32IsTheOneThatOthersHave) {
  EXPECT_EQ(Xxh32({}), 0x02CC5D05u);
  EXPECT_EQ(Xxh32(std::as_bytes(std::span("abc", 3))), 0x32D153FFu);
}

}  // namespace
}  // namespace hearth
