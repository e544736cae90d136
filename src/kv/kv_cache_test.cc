#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/dispatch.h"
#include "kernels/kernel_table.h"
#include "tensor/half.h"
#include "tensor/test_kv_numbers.h"

namespace hearth {
namespace {

const KvLayout kLayout{.codec = KvCodec::kF32, .num_layers = 2, .num_kv_heads = 3, .head_dim = 5};

const kernels::KvEncoders& Encoders() { return kernels::UsableKernels({})[0]->kv_encoders; }

// Marks a token's keys and values of all layers with numbers derived from `tag`.
void StoreToken(KvSequence& sequence, int64_t position, float tag) {
  const auto n = static_cast<size_t>(kLayout.num_kv_heads * kLayout.head_dim);
  std::vector<float> keys(n), values(n);
  for (int64_t layer = 0; layer < kLayout.num_layers; ++layer) {
    for (size_t i = 0; i < n; ++i) {
      keys[i] = tag + static_cast<float>(layer) * 1000 + static_cast<float>(i);
      values[i] = -keys[i];
    }
    sequence.Store(layer, position, keys.data(), values.data(), Encoders());
  }
}

float KeyAt(const KvSequence& sequence, int64_t layer, int64_t head, int64_t position, int64_t i) {
  const std::byte* page = sequence.pages()[static_cast<size_t>(position / 64)];
  const KvLayout& layout = sequence.layout();
  const int64_t row = position % 64;
  const std::byte* keys = page + layout.KeysOffset(layer, head) + layout.KeyBlockAt(row);
  return static_cast<float>(testing::KeyAt(layout.key_block(), keys, row % 16, i).value());
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
  layout.codec = KvCodec::kF16;
  Budget budget;
  KvPool pool(budget, layout, 1);
  KvSequence sequence(pool);
  sequence.Append(1);
  const std::vector<float> x(15, 1.5f);
  sequence.Store(0, 0, x.data(), x.data(), Encoders());
  const auto* half =
      reinterpret_cast<const uint16_t*>(sequence.pages()[0] + layout.ValuesOffset(0, 2));
  EXPECT_EQ(half[4], 0x3e00);
}

// Every codec and shape: a stored token is what its encoders say, and no byte of another changes.
class KvCodecTest : public ::testing::TestWithParam<int> {
 protected:
  static KvCodec Codec() { return static_cast<KvCodec>(GetParam()); }
  static std::vector<float> Random(int64_t n, std::mt19937& random) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = std::normal_distribution<float>(1, 2)(random);
    return x;
  }
  // Component i of the key of a page's token `row`, and half of its step.
  static std::pair<float, float> Key(const KvLayout& layout, const std::byte* keys, int64_t row,
                                     int64_t i) {
    const testing::KeyNumber key =
        testing::KeyAt(layout.key_block(), keys + layout.KeyBlockAt(row), row % 16, i);
    const auto value = static_cast<float>(key.value());
    if (!layout.key_block().has_codes()) return {value, std::abs(value) * 0x1p-11f};
    // The outermost components of few codes may be cut off.
    const bool may_be_cut =
        layout.keys() == KvKeys::kInt4 && (key.code == 0 || key.code == MostCodeOf(layout.keys()));
    return {value, key.scale * (may_be_cut ? 4.0f : 0.5001f)};
  }
  static std::pair<float, float> Value(const KvLayout& layout, const std::byte* values, int64_t row,
                                       int64_t i) {
    const std::byte* at = values + layout.ValueAt(row) + i * BytesOf(layout.values());
    const float number = testing::ValueAt(layout.values(), at);
    if (!layout.has_value_scales()) return {number, std::abs(number) * 0x1p-11f};
    const float scale = testing::HalfAt(values + layout.ValueScaleAt(row));
    const float value = scale * number;
    return {value, std::max(std::abs(value) * 0x1p-4f, scale * 0x1p-10f) * 1.001f};
  }
};

TEST_P(KvCodecTest, StoresWhatItReadsAndTouchesNoOtherToken) {
  std::mt19937 random(3);
  for (const int64_t head_dim : {1, 2, 5, 16, 63, 64, 65, 80, 96, 112, 128, 256}) {
    const KvLayout layout{Codec(), 2, 3, head_dim};
    Budget budget;
    KvPool pool(budget, layout, 64);
    KvSequence sequence(pool);
    sequence.Append(64);
    std::byte* page = sequence.pages()[0];
    std::vector<std::byte> before(page, page + layout.page_bytes());
    std::vector<int> writers(layout.page_bytes());
    for (int64_t row = 0; row < 64; ++row) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        const std::vector<float> keys = Random(3 * head_dim, random);
        const std::vector<float> values = Random(3 * head_dim, random);
        // Whatever was there: bytes that this token has are written whole.
        sequence.Store(layer, row, keys.data(), values.data(), Encoders());
        for (int64_t head = 0; head < 3; ++head) {
          for (int64_t i = 0; i < head_dim; ++i) {
            const auto at = static_cast<size_t>(head * head_dim + i);
            const auto [key, key_step] = Key(layout, page + layout.KeysOffset(layer, head), row, i);
            ASSERT_NEAR(key, keys[at], key_step + std::abs(key) * 0x1p-22f);
            const auto [value, value_step] =
                Value(layout, page + layout.ValuesOffset(layer, head), row, i);
            ASSERT_NEAR(value, values[at], value_step);
          }
        }
        for (size_t i = 0; i < before.size(); ++i) {
          if (page[i] != before[i]) ++writers[i];
          before[i] = page[i];
        }
      }
    }
    for (const int count : writers) ASSERT_LE(count, 1) << "a byte belongs to two tokens";
  }
}

TEST_P(KvCodecTest, TakesTheBytesThatItsTypesNeed) {
  for (const int64_t head_dim : {64, 80, 96, 112, 128, 256}) {
    const KvLayout layout{Codec(), 3, 2, head_dim};
    const auto [keys, values] = std::pair(BitsOf(layout.keys()), BytesOf(layout.values()));
    const int64_t ranges = keys == 4 ? (head_dim + 31) / 32 : keys == 8 ? 1 : 0;
    const int64_t of_head =
        head_dim * keys / 8 + ranges * 4 + head_dim * values + (values == 1 ? 2 : 0);
    EXPECT_EQ(layout.token_bytes(), static_cast<size_t>(6 * of_head));
    EXPECT_EQ(layout.page_bytes(), 64 * layout.token_bytes());
  }
  EXPECT_EQ(KvCodecFromName(InfoOf(Codec()).name), Codec());
  EXPECT_EQ(KvCodecFromNumber(static_cast<uint32_t>(Codec())), Codec());
  const std::string names = "|" + std::string(kKvCodecNames) + "|";
  EXPECT_NE(names.find("|" + std::string(InfoOf(Codec()).name) + "|"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, KvCodecTest, ::testing::Range(0, static_cast<int>(kKvCodecs.size())),
                         [](const auto& of_test) {
                           return std::string(kKvCodecs[static_cast<size_t>(of_test.param)].name);
                         });

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

// Pages whose memory another uses.
class LentPagesTest : public ::testing::Test {
 protected:
  LentKvMemory Memory() {
    return {.pages = bytes_.data(),
            .take =
                [this](int64_t page) {
                  if (refuses_) throw Error(ErrorCode::kOutOfBudget, "test", "no");
                  EXPECT_TRUE(taken_.insert(page).second);
                },
            .give_back = [this](int64_t page) { EXPECT_EQ(taken_.erase(page), 1u); }};
  }

  static constexpr int64_t kPages = 8;
  bool refuses_ = false;
  std::set<int64_t> taken_;
  std::vector<std::byte> bytes_ =
      std::vector<std::byte>(kPages * kLayout.page_bytes(), std::byte{0xff});
  KvPool pool_{kLayout, 64 * kPages, Memory()};
};

TEST_F(LentPagesTest, ArePagesOfSequencesOnlyWhileTheyAreUsed) {
  EXPECT_EQ(pool_.free_pages(), kPages);
  EXPECT_EQ(pool_.lent_bytes(), kPages * kLayout.page_bytes());
  {
    KvSequence sequence(pool_);
    sequence.Append(64 * 5);
    EXPECT_EQ(taken_, (std::set<int64_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(pool_.used_bytes(), 5 * kLayout.page_bytes());
    for (const std::byte* page : sequence.pages()) EXPECT_EQ(page[7], std::byte{0});
    StoreToken(sequence, 130, 4);
    EXPECT_EQ(KeyAt(sequence, 1, 2, 130, 3), 4 + 1000 + 2 * 5 + 3);
    sequence.Truncate(64 * 4);
    EXPECT_EQ(taken_.size(), 5u) << "a page or two are kept";
    sequence.Truncate(1);
    EXPECT_EQ(taken_.size(), 1 + KvFrames::kKept);
  }
  EXPECT_EQ(taken_.size(), KvFrames::kKept);
  EXPECT_EQ(pool_.free_pages(), kPages);
}

TEST_F(LentPagesTest, ASequenceThatCannotGrowStaysAsItWas) {
  KvSequence sequence(pool_), other(pool_);
  sequence.Append(100);
  StoreToken(sequence, 99, 5);
  refuses_ = true;
  EXPECT_THROW(sequence.Append(100), Error);
  EXPECT_EQ(sequence.length(), 100);
  EXPECT_EQ(KeyAt(sequence, 0, 0, 99, 0), 5);
  sequence.Append(28);  // the page that it has
  EXPECT_THROW(other.Append(1), Error);
  refuses_ = false;
  other.Append(64 * 6);
  EXPECT_THROW(sequence.Append(1), Error) << "all pages are in use";
}

TEST_F(LentPagesTest, FollowAnyGrowthAndShrinking) {
  std::mt19937 random(3);
  std::vector<KvSequence> sequences;
  for (int step = 0; step < 3000; ++step) {
    const auto pick = [&](int64_t most) {
      return std::uniform_int_distribution<int64_t>(0, most)(random);
    };
    if (sequences.size() < 4 && pick(5) == 0) sequences.emplace_back(pool_);
    if (sequences.empty()) continue;
    KvSequence& one = sequences[static_cast<size_t>(pick(std::ssize(sequences) - 1))];
    switch (pick(3)) {
      case 0:
        one.Truncate(pick(one.length()));
        break;
      case 1:
        if (sequences.size() < 4) sequences.push_back(one.Fork());
        break;
      case 2:
        one = KvSequence(pool_);
        break;
      default:
        if (const int64_t more = pick(200); one.PagesToAppend(more) <= pool_.free_pages()) {
          one.Append(more);
        }
    }
    std::set<const std::byte*> used;
    for (const KvSequence& sequence : sequences) {
      used.insert(sequence.pages().begin(), sequence.pages().end());
    }
    ASSERT_EQ(pool_.free_pages(), kPages - std::ssize(used));
    ASSERT_EQ(std::ssize(taken_), kPages - pool_.frames().lent());
    ASSERT_GE(taken_.size(), used.size());
    for (const std::byte* page : used) {
      ASSERT_EQ(taken_.count((page - bytes_.data()) / static_cast<int64_t>(kLayout.page_bytes())),
                1u);
    }
  }
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
