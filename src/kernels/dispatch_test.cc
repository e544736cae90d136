#include "kernels/dispatch.h"

#include <set>

#include "kernels/test_util.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels {
namespace {

TEST(DispatchTest, WithoutFeaturesOnlyTheOracleIsUsable) {
  const auto tables = UsableKernels(CpuFeatures{});
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_STREQ(tables[0]->isa, "scalar");
  EXPECT_EQ(&BestKernels(CpuFeatures{}), tables[0]);
}

TEST(DispatchTest, BestIsLastAndAllAreFoundByName) {
  const CpuFeatures features = DetectCpuFeatures();
  const auto tables = UsableKernels(features);
  EXPECT_STREQ(tables.front()->isa, "scalar");
  EXPECT_EQ(&BestKernels(features), tables.back());
  std::set<std::string> names;
  for (const KernelTable* table : tables) {
    EXPECT_TRUE(names.insert(table->isa).second) << table->isa << " occurs twice";
    EXPECT_EQ(FindKernels(table->isa, features), table);
    if (table != tables.front()) {
      EXPECT_EQ(FindKernels(table->isa, CpuFeatures{}), nullptr);
    }
  }
  EXPECT_EQ(FindKernels("no such isa", features), nullptr);
}

// On the machine of the other architecture neither exists.
TEST(DispatchTest, EveryFeatureBringsItsTable) {
  const CpuFeatures f = DetectCpuFeatures();
  EXPECT_EQ(FindKernels("avx2", f) != nullptr, f.avx2);
  EXPECT_EQ(FindKernels("avx-vnni", f) != nullptr, f.avx_vnni);
  EXPECT_EQ(FindKernels("avx512", f) != nullptr, f.avx512);
  EXPECT_EQ(FindKernels("avx512-vnni", f) != nullptr, f.avx512_vnni);
  EXPECT_EQ(FindKernels("neon", f) != nullptr, f.neon);
  EXPECT_EQ(FindKernels("dotprod", f) != nullptr, f.dotprod);
  EXPECT_EQ(FindKernels("i8mm", f) != nullptr, f.i8mm);
}

// A feature of a newer processor without the older ones must not bring its table.
TEST(DispatchTest, FeaturesNeedTheirBase) {
  CpuFeatures features;
  features.avx512_vnni = true;
  features.avx_vnni = true;
  features.dotprod = true;
  features.i8mm = true;
  EXPECT_EQ(UsableKernels(features).size(), 1u);
}

TEST(DispatchTest, TypesWithKernels) {
  for (DType dtype : testing::TiledTypes()) {
    EXPECT_TRUE(TileLayout::IsTiled(dtype));
    EXPECT_TRUE(HasKernel(dtype));
  }
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_FALSE(TileLayout::IsTiled(dtype));
    EXPECT_TRUE(HasKernel(dtype));
  }
  EXPECT_FALSE(HasKernel(DType::kI32));
}

class TableContentTest : public testing::TableTest {};

TEST_P(TableContentTest, HasEveryKernel) {
  const KernelTable& t = table();
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const bool is_tiled = TileLayout::IsTiled(dtype);
    EXPECT_EQ(t.matmul[i] != nullptr, HasKernel(dtype) && !is_tiled) << i;
    EXPECT_EQ(t.matmul_tiles[i] != nullptr, HasKernel(dtype) && is_tiled) << i;
  }
  for (const auto& activation : t.ffn_activation) EXPECT_NE(activation, nullptr);
  EXPECT_TRUE(t.quantize_q8 && t.rms_norm && t.rope && t.softmax && t.add && t.scaled_add);
  EXPECT_TRUE(t.kv_encoders.to_half && t.kv_encoders.key_range && t.kv_encoders.key_codes);
  EXPECT_TRUE(t.kv_encoders.to_fp8 && t.attn_weights);
  for (const auto& scores : t.attn_scores) EXPECT_NE(scores, nullptr);
  for (const auto& values : t.attn_values) EXPECT_NE(values, nullptr);
  EXPECT_TRUE(t.probe_int8 && t.probe_float && t.probe_read);
}

HEARTH_FOR_ALL_TABLES(TableContentTest);

}  // namespace
}  // namespace hearth::kernels
