#include "prepare/pack/ffn_packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

class FfnPackerTest : public ::testing::Test {
 protected:
  void Make(int64_t hidden, int64_t ffn, const char* more) {
    MakeModel(folder_.Path("m"), ShapeText(hidden, ffn, more), DType::kF16);
    source_ = std::make_unique<GgufFile>(GgufFile::Open(folder_.Path("m")));
    profile_ = MakeProfile(*source_);
    plan_ = PlanPack(*source_, {.profile = &profile_, .quant = DType::kQ4_0});
  }

  uint64_t RowOfDown() const { return RowBytes(plan_->quant, static_cast<size_t>(plan_->hidden)); }

  PackMemory Plan(uint64_t limit_bytes, bool counts_page_cache = true) const {
    return PackMemory::Plan(*plan_, {.threads = 2,
                                     .limit_bytes = limit_bytes,
                                     .used_bytes = uint64_t{10} << 20,
                                     .limit_counts_page_cache = counts_page_cache});
  }

  // All bundles, made with this memory.
  std::vector<std::byte> Bundles(const PackMemory& memory, int threads) const {
    WorkerTeam team(threads);
    Budget budget;
    FfnPacker packer(*source_, *plan_, memory, team, budget);
    std::vector<std::byte> out;
    int ticks = 0;
    packer.Pack(
        [&](int, std::span<const std::byte> bytes) {
          out.insert(out.end(), bytes.begin(), bytes.end());
        },
        [&] { ++ticks; });
    EXPECT_GT(ticks, 0);
    EXPECT_GE(budget.peak_bytes(), memory.down_bytes);
    return out;
  }

  TestFolder folder_{"hearth_ffn_packer"};
  std::unique_ptr<GgufFile> source_;
  ModelProfile profile_;
  std::unique_ptr<const PackPlan> plan_;
};

TEST_F(FfnPackerTest, RangesMakeTheSameBundles) {
  for (const char* more : {kDenseShape, kExpertShape}) {
    Make(96, 300, more);
    PackMemory memory = Plan(uint64_t{1} << 30);
    EXPECT_TRUE(memory.fetch_whole_ffns);
    EXPECT_EQ(memory.down_bytes, 300 * RowOfDown());
    const std::vector<std::byte> expected = Bundles(memory, 1);
    EXPECT_EQ(expected.size(), plan_->neurons * plan_->layout.stride);
    for (const uint64_t held : {1, 7, 150, 299, 300}) {
      memory.down_bytes = held * RowOfDown();
      memory.fetch_whole_ffns = held > 100;
      EXPECT_TRUE(Bundles(memory, held % 2 == 0 ? 1 : 3) == expected) << held;
    }
  }
}

TEST_F(FfnPackerTest, GivesUpPageCacheFirstAndThenRows) {
  Make(2048, 2500, kDenseShape);
  const auto needed = [&](const PackMemory& memory) {
    return (uint64_t{10} << 20) + memory.CachedBytes(*plan_) +
           Buffer::ChargedBytes(2 * memory.thread_bytes) + Buffer::ChargedBytes(memory.down_bytes);
  };
  const PackMemory roomy = Plan(uint64_t{1} << 40);
  const PackMemory exact = Plan(needed(roomy));
  EXPECT_TRUE(exact.fetch_whole_ffns);
  const PackMemory tighter = Plan(needed(roomy) - 1);
  EXPECT_FALSE(tighter.fetch_whole_ffns);
  EXPECT_EQ(tighter.down_bytes, roomy.down_bytes);
  for (uint64_t limit = needed(tighter) - 1; limit > needed(tighter) - (1 << 20); limit -= 77777) {
    const PackMemory tight = Plan(limit);
    EXPECT_LE(needed(tight), limit);
    // And takes what there is, up to a page and a row.
    EXPECT_GT(needed(tight) + 2 * 4096 + RowOfDown(), limit);
    EXPECT_LT(tight.down_bytes, roomy.down_bytes);
  }
  EXPECT_THROW(Plan(uint64_t{20} << 20), Error);
  // Page cache that no limit counts costs nothing.
  EXPECT_EQ(Plan(uint64_t{1} << 40, false).CachedBytes(*plan_), 0u);
  EXPECT_LT(needed(Plan(uint64_t{1} << 40, false)), needed(tighter));
}

}  // namespace
}  // namespace hearth
