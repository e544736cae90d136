#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "kernels/kernel_table.h"

namespace hearth {
namespace {

const KvLayout kLayout{.dtype = DType::kF32, .num_layers = 2, .num_kv_heads = 3, .head_dim = 5};

// Marks a token's keys and values of all layers with numbers derived from `tag`.
void StoreToken(KvSequence& sequence, int64_t position, float tag) {
  const auto n = static_cast<size_t>(kLayout.num_kv_heads * kLayout.head_dim);
  std::vector<float> keys(n), values(n);
  for (int64_t layer = 0; layer < kLayout.num_layers; ++layer) {
    for (size_t i = 0; i < n; ++i) {
      keys[i] = tag + static_cast<float>(layer) * 1000 + static_cast<float>(i);
      values[i] = -keys[i];
    }
    sequence.Store(layer, position, keys.data(), values.data(), nullptr);
  }
}

float KeyAt(const KvSequence& sequence, int64_t layer, int64_t head, int64_t position, int64_t i) {
  const std::byte* page = sequence.pages()[static_cast<size_t>(position / 64)];
  const auto* keys =
      reinterpret_cast<const float*>(page + sequence.layout().KeysOffset(layer, head));
  return keys[sequence.layout().KeyElement(position % 64, i)];
}

TEST(KvCacheTest, StoresEveryHeadWhereTheLayoutSays) {
  Budget budget;
  KvPool pool(budget, kLayout, 200);
  EXPECT_EQ(pool.num_pages(), 4);
  KvSequence sequence(pool);
  sequence.Append(130);
  for (int64_t p = 0; p < 130; ++p) StoreToken(sequence, p, static_cast<float>(p) * 100000);
  for (const int64_t p : {0, 63, 64, 129}) {
    for (int64_t head = 0; head < 3; ++head) {
      EXPECT_EQ(KeyAt(sequence, 1, head, p, 4),
                static_cast<float>(p) * 100000 + 1000 + static_cast<float>(head * 5 + 4));
    }
  }
}

TEST(KvCacheTest, ConvertsToHalf) {
  KvLayout layout = kLayout;
  layout.dtype = DType::kF16;
  Budget budget;
  KvPool pool(budget, layout, 1);
  KvSequence sequence(pool);
  sequence.Append(1);
  const std::vector<float> x(15, 1.5f);
  sequence.Store(0, 0, x.data(), x.data(), kernels::UsableKernels({})[0]->float_to_half);
  const auto* half =
      reinterpret_cast<const uint16_t*>(sequence.pages()[0] + layout.ValuesOffset(0, 2));
  EXPECT_EQ(half[4], 0x3e00);
}

TEST(KvCacheTest, ForkSharesPagesAndCopiesBeforeWriting) {
  Budget budget;
  KvPool pool(budget, kLayout, 64 * 4);
  KvSequence a(pool);
  a.Append(70);
  for (int64_t p = 0; p < 70; ++p) StoreToken(a, p, static_cast<float>(p));
  KvSequence b = a.Fork();
  EXPECT_EQ(pool.free_pages(), 2) << "a fork takes no page";
  b.Append(1);
  StoreToken(b, 70, 777);
  EXPECT_EQ(pool.free_pages(), 1) << "only the partly filled page is copied";
  a.Append(1);
  StoreToken(a, 70, 555);
  EXPECT_EQ(KeyAt(b, 0, 0, 70, 0), 777);
  EXPECT_EQ(KeyAt(a, 0, 0, 70, 0), 555);
  EXPECT_EQ(KeyAt(b, 0, 0, 69, 0), 69);
  EXPECT_EQ(a.pages()[0], b.pages()[0]);
}

TEST(KvCacheTest, TruncateAndDestructionGivePagesBack) {
  Budget budget;
  KvPool pool(budget, kLayout, 64 * 3);
  {
    KvSequence a(pool);
    a.Append(190);
    const KvSequence b = a.Fork();
    a.Truncate(64);
    EXPECT_EQ(pool.free_pages(), 0) << "the fork still holds them";
  }
  EXPECT_EQ(pool.free_pages(), 3);
}

TEST(KvCacheTest, RefusesMoreTokensThanPagesAndStaysUsable) {
  Budget budget;
  KvPool pool(budget, kLayout, 64);
  KvSequence sequence(pool);
  sequence.Append(60);
  EXPECT_THROW(sequence.Append(5), Error);
  EXPECT_EQ(sequence.length(), 60);
  sequence.Append(4);
  EXPECT_EQ(sequence.length(), 64);
}

TEST(KvCacheTest, IsCountedInTheBudget) {
  Budget budget(KvPool::ChargedBytes(kLayout, 64));
  {
    KvPool pool(budget, kLayout, 64);
    EXPECT_EQ(budget.Ledger().at("kv cache"), KvPool::ChargedBytes(kLayout, 64));
    EXPECT_THROW(KvPool(budget, kLayout, 1), Error);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(KvCacheTest, RefusesSizesWhoseProductOverflows) {
  Budget budget;
  KvLayout layout = kLayout;
  layout.num_layers = 4096;
  layout.num_kv_heads = int64_t{1} << 20;
  layout.head_dim = 4096;
  EXPECT_THROW(KvPool(budget, layout, int64_t{1} << 31), Error);
  EXPECT_THROW(KvPool::ChargedBytes(layout, int64_t{1} << 31), Error);
}

}  // namespace
}  // namespace hearth
