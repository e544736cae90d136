#include "base/memory_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/buffer.h"

namespace hearth {
namespace {

TEST(MemoryLockTest, LocksWhatThereIsOrNamesTheLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has more addresses than can be locked";
#endif
  constexpr size_t kBytes = size_t{64} << 20;
  Budget budget;
  Buffer buffer(budget, "test", kBytes);
  EXPECT_EQ(LockedBytes(), 0u);
  const std::string refusal = LockMemory();
  if (refusal.empty()) {
    EXPECT_GE(LockedBytes(), kBytes);
    buffer.data()[kBytes / 2] = std::byte{1};
    // Locked memory cannot be dropped.
    EXPECT_EQ(madvise(buffer.data(), kBytes, MADV_DONTNEED), -1);
    EXPECT_EQ(buffer.data()[kBytes / 2], std::byte{1});
  } else {
    EXPECT_THAT(refusal, testing::HasSubstr("ulimit -l"));
    EXPECT_EQ(LockedBytes(), 0u);
  }
  munlockall();
}

}  // namespace
}  // namespace hearth
