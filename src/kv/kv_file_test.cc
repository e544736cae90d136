#include "kv/kv_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace hearth {
namespace {

const KvLayout kSavedLayout{
    .codec = KvCodec::kF16, .num_layers = 2, .num_kv_heads = 3, .head_dim = 32};

TEST(KvFileTest, AHeaderSaysItsLengthAndNothingElse) {
  for (const int64_t length : {0, 1, 64, 65, 4096}) {
    EXPECT_EQ(CheckKvHeader(MakeKvHeader(kSavedLayout, length), kSavedLayout, "f"), length);
  }
  const KvHeader good = MakeKvHeader(kSavedLayout, 67);
  for (size_t i = 0; i < good.size(); ++i) {
    KvHeader altered = good;
    altered[i] ^= std::byte{1};
    EXPECT_THROW(CheckKvHeader(altered, kSavedLayout, "f"), Error) << i;
  }
}

TEST(KvFileTest, AnotherLayoutIsForeignNotCorrupt) {
  KvLayout other = kSavedLayout;
  other.codec = KvCodec::kF32;
  try {
    CheckKvHeader(MakeKvHeader(other, 5), kSavedLayout, "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
  EXPECT_THROW(CheckKvHeader(MakeKvHeader(kSavedLayout, -5), kSavedLayout, "f"), Error);
  for (size_t codec = 0; codec < kKvCodecs.size(); ++codec) {
    other.codec = static_cast<KvCodec>(codec);
    EXPECT_EQ(CheckKvHeader(MakeKvHeader(other, 5), other, "f"), 5);
    if (other == kSavedLayout) continue;
    EXPECT_THROW(CheckKvHeader(MakeKvHeader(other, 5), kSavedLayout, "f"), Error);
  }
}

TEST(KvFileTest, AnotherVersionIsForeignAndAnotherMarkIsCorrupt) {
  const auto code_of = [](size_t altered_byte) {
    KvHeader header = MakeKvHeader(kSavedLayout, 5);
    header[altered_byte] ^= std::byte{3};
    try {
      CheckKvHeader(header, kSavedLayout, "f");
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code_of(7), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of(0), ErrorCode::kCorrupt);
}

TEST(KvFileTest, PagesLieBehindEachOther) {
  const uint64_t page = kSavedLayout.page_bytes() + 8;
  EXPECT_EQ(KvPageOffset(kSavedLayout, 0), 56u);
  EXPECT_EQ(KvPageOffset(kSavedLayout, 3), 56 + 3 * page);
  EXPECT_EQ(SavedKvBytes(kSavedLayout, 0, "f"), 56u);
  EXPECT_EQ(SavedKvBytes(kSavedLayout, 64, "f"), 56 + page);
  EXPECT_EQ(SavedKvBytes(kSavedLayout, 65, "f"), 56 + 2 * page);
  EXPECT_THROW(SavedKvBytes(kSavedLayout, INT64_MAX, "f"), Error);
  EXPECT_THROW(SavedKvBytes(kSavedLayout, -1, "f"), Error);
}

}  // namespace
}  // namespace hearth
