#include "base/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

TEST(Buffer, IsZeroFilledAlignedAndPaddedForReading) {
  Budget budget;
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{4032}, size_t{5} << 20}) {
    Buffer buffer(budget, "test", bytes);
    EXPECT_EQ(buffer.size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
    for (size_t i = 0; i < bytes + Buffer::kReadPadding; i += 61) {
      ASSERT_EQ(buffer.data()[i], std::byte{0});
    }
    buffer.data()[bytes - 1] = std::byte{1};
    EXPECT_EQ(budget.used_bytes(), Buffer::ChargedBytes(bytes));
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(Buffer, BeginsWithAHugePageWhereItHasRoomForOne) {
  Budget budget;
  for (const size_t bytes : {size_t{2} << 20, size_t{5} << 20, (size_t{7} << 20) + 123}) {
    Buffer buffer(budget, "test", bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (size_t{2} << 20), 0u);
    buffer.data()[0] = buffer.data()[bytes - 1] = std::byte{1};
  }
}

TEST(Buffer, IsChargedWholePagesWithPadding) {
  EXPECT_EQ(Buffer::ChargedBytes(0), 0u);
  EXPECT_EQ(Buffer::ChargedBytes(1), 4096u);
  EXPECT_EQ(Buffer::ChargedBytes(4096 - 64), 4096u);
  EXPECT_EQ(Buffer::ChargedBytes(4096 - 63), 8192u);
}

TEST(Buffer, EndsWithAHugePageWhereThatIsAskedFor) {
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  for (const size_t bytes : {kHuge, 2 * kHuge - 5000, 5 * kHuge + 4096}) {
    Budget budget;
    Buffer buffer(budget, "test", bytes, HugeEnd::kLast);
    const uint64_t charged = Buffer::ChargedBytes(bytes);
    EXPECT_EQ((reinterpret_cast<uintptr_t>(buffer.data()) + charged) % kHuge, 0u) << bytes;
    std::memset(buffer.data(), 1, bytes);
    EXPECT_EQ(budget.used_bytes(), charged);
  }
}

TEST(Buffer, FillsUpItsLastHugePage) {
  constexpr size_t kHuge = size_t{2} << 20;
  EXPECT_EQ(Buffer::UpToHugePage(100), 100u) << "has none";
  EXPECT_EQ(Buffer::UpToHugePage(kHuge - 1), kHuge - 1);
  for (const size_t bytes : {kHuge - Buffer::kReadPadding, kHuge, 3 * kHuge - 5000}) {
    const size_t filled = Buffer::UpToHugePage(bytes);
    EXPECT_GE(filled, bytes);
    EXPECT_EQ(Buffer::ChargedBytes(filled) % kHuge, 0u);
    EXPECT_LT(filled, bytes + kHuge);
  }
}

TEST(Buffer, OfZeroBytesIsEmpty) {
  Budget budget(0);
  const Buffer buffer(budget, "nothing", 0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size_bytes(), 0u);
}

TEST(Buffer, IsViewedAsElements) {
  Budget budget;
  Buffer buffer(budget, "floats", 12);
  buffer.As<float>(3)[2] = 1.5f;
  const Buffer& constant = buffer;
  EXPECT_EQ(constant.As<float>(3)[2], 1.5f);
  EXPECT_EQ(constant.As<float>(3).size(), 3u);
}

TEST(Buffer, MovesWithItsCharge) {
  Budget budget;
  Buffer a(budget, "a", 100);
  std::byte* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: a moved-from buffer is empty by contract
  EXPECT_EQ(b.data(), data);
  Buffer c(budget, "c", 10000);
  c = std::move(b);
  EXPECT_EQ(c.size_bytes(), 100u);
  EXPECT_EQ(budget.used_bytes(), Buffer::ChargedBytes(100));
  c = Buffer();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(Buffer, IsRefusedBeyondTheBudget) {
  Budget budget(8191);
  EXPECT_NO_THROW(Buffer(budget, "small", 4032));
  try {
    Buffer(budget, "large", 4033);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(Buffer, IsRefusedWhereItCannotBeMeant) {
  Budget budget;
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, size_t{1} << 62}) {
    try {
      Buffer(budget, "absurd", bytes);
      FAIL() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.where(), "absurd");
    }
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace hearth
