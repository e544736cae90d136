#include "format/bundle_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

using testing::HasSubstr;

// docs/formats/bundle.md draws these two.
TEST(BundleLayoutTest, MatchesTheDrawings) {
  const BundleLayout wide = MakeBundleLayout(DType::kQ4_0, 4096);
  EXPECT_EQ(wide.split, 2560u);
  EXPECT_EQ(wide.stride, 7168u);
  EXPECT_EQ(wide.Part(BundleRole::kGate), (BundlePart{BundleRole::kGate, DType::kQ4_0, 0, 2304}));
  EXPECT_EQ(wide.Part(BundleRole::kCheck).offset, 2304u);
  EXPECT_EQ(wide.Part(BundleRole::kUp).offset, 2560u);
  EXPECT_EQ(wide.Part(BundleRole::kDown).offset, 4864u);
  const BundleLayout narrow = MakeBundleLayout(DType::kQ4_0, 1536);
  EXPECT_EQ(narrow.split, 1024u);
  EXPECT_EQ(narrow.Part(BundleRole::kDown).offset + narrow.Part(BundleRole::kDown).bytes, 2752u);
  EXPECT_EQ(narrow.stride, 3072u);
  EXPECT_EQ(MakeBundleLayout(DType::kF16, 4096).stride, 25088u);
}

constexpr BundleKind kKinds[] = {{}, {.is_gated = false}, {.is_gated = false, .has_bias = true}};

// docs/formats/bundle.md draws it.
TEST(BundleLayoutTest, OfTwoMatricesHasABiasAndNoUp) {
  const BundleLayout opt =
      MakeBundleLayout(DType::kQ4_0, 4096, {.is_gated = false, .has_bias = true});
  EXPECT_EQ(opt.Part(BundleRole::kBias), (BundlePart{BundleRole::kBias, DType::kF32, 2304, 4}));
  EXPECT_EQ(opt.Part(BundleRole::kCheck).offset, 2308u);
  EXPECT_EQ(opt.split, 2560u);
  EXPECT_EQ(opt.Part(BundleRole::kDown).offset, 2560u);
  EXPECT_EQ(opt.stride, 5120u);
  GgufMetadata metadata("m.gguf");
  WriteBundleLayout(opt, &metadata);
  EXPECT_EQ(*metadata.FindStrings(kBundlePartsKey),
            (std::vector<std::string>{"fc1 Q4_0 0 2304", "bias F32 2304 4", "check xxh32 2308 8",
                                      "fc2 Q4_0 2560 2304"}));
}

TEST(BundleLayoutTest, RowsOfPartAreInEveryBundle) {
  for (const BundleKind& kind : kKinds) {
    const BundleLayout layout = MakeBundleLayout(DType::kF16, 32, kind);
    std::vector<std::byte> bundles(3 * layout.stride);
    const float bias = -2.5f;
    if (kind.has_bias) {
      std::memcpy(&bundles[2 * layout.stride + layout.Part(BundleRole::kBias).offset], &bias, 4);
    }
    const auto rows = [&](BundleRole role) {
      return RowsOfPart(layout, role, 32, 3, bundles.data(), layout.stride);
    };
    EXPECT_EQ(rows(BundleRole::kGate).data, bundles.data());
    EXPECT_EQ(rows(BundleRole::kUp).empty(), !kind.is_gated);
    EXPECT_EQ(rows(BundleRole::kDown).data, bundles.data() + layout.Part(BundleRole::kDown).offset);
    EXPECT_EQ(rows(BundleRole::kDown).biases, nullptr);
    EXPECT_EQ(rows(BundleRole::kGate).biases != nullptr, kind.has_bias);
    if (kind.has_bias) {
      EXPECT_EQ(rows(BundleRole::kGate).Bias(2), bias);
    }
  }
}

TEST(BundleLayoutTest, IsReadBackForEverySizeAndType) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16}) {
    for (int64_t hidden = 32; hidden <= 2048; hidden += 96) {
      const BundleKind& kind = kKinds[hidden / 32 % 3];
      const BundleLayout layout = MakeBundleLayout(dtype, hidden, kind);
      EXPECT_EQ(layout.kind(), kind);
      GgufMetadata metadata("m.gguf");
      EXPECT_FALSE(IsPacked(metadata));
      WriteBundleLayout(layout, &metadata);
      EXPECT_TRUE(IsPacked(metadata));
      EXPECT_EQ(ReadBundleLayout(metadata, hidden, layout.stride), layout);
    }
  }
}

TEST(BundleLayoutTest, EveryAlteredByteOfWeightsOrChecksIsNoticed) {
  for (const int64_t hidden : {32, 96, 160, 512}) {
    const BundleLayout layout = MakeBundleLayout(DType::kQ4_1, hidden, kKinds[hidden / 32 % 3]);
    std::vector<std::byte> bundle(layout.stride);
    std::mt19937 random(7);
    for (std::byte& b : bundle) b = static_cast<std::byte>(random());
    SetBundleChecks(layout, bundle);
    EXPECT_TRUE(BundleIsIntact(layout, bundle));
    for (const BundlePart& part : layout.parts) {
      for (uint64_t i = part.offset; i < part.offset + part.bytes; ++i) {
        bundle[i] ^= std::byte{4};
        EXPECT_FALSE(BundleIsIntact(layout, bundle)) << i;
        bundle[i] ^= std::byte{4};
      }
    }
  }
}

struct LayoutRefusal {
  const char* name;
  std::vector<std::string> parts;
  uint64_t split = 512;
  uint64_t stride = 512 * 3;
  uint32_t version = 1;
  ErrorCode code = ErrorCode::kCorrupt;
  const char* says = "";
};

// The parts of a model of hidden size 128: a row of Q8_0 takes 136 bytes there.
std::vector<std::string> Parts(std::string gate = "gate Q8_0 0 136",
                               std::string check = "check xxh32 136 8",
                               std::string up = "up Q8_0 512 136",
                               std::string down = "down Q8_0 648 136") {
  return {std::move(gate), std::move(check), std::move(up), std::move(down)};
}

class BundleLayoutRefusalTest : public testing::TestWithParam<LayoutRefusal> {};

TEST_P(BundleLayoutRefusalTest, SaysWhy) {
  const LayoutRefusal& refusal = GetParam();
  GgufMetadata metadata("m.gguf");
  metadata.SetUint32(kFormatVersionKey, refusal.version);
  metadata.SetUint64(kBundleSplitKey, refusal.split);
  metadata.SetStrings(kBundlePartsKey, refusal.parts);
  try {
    ReadBundleLayout(metadata, 128, refusal.stride);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), refusal.code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(refusal.says));
    EXPECT_THAT(error.what(), HasSubstr("m.gguf"));
  }
}

const LayoutRefusal kLayoutRefusals[] = {
    {.name = "Version",
     .parts = Parts(),
     .version = 2,
     .code = ErrorCode::kUnsupported,
     .says = "hearth.format_version"},
    {.name = "StrideZero", .parts = Parts(), .stride = 0, .says = "bytes of a bundle"},
    {.name = "StrideOdd", .parts = Parts(), .stride = 1000, .says = "multiple of 512"},
    {.name = "SplitOdd", .parts = Parts(), .split = 100, .says = "hearth.bundle.split"},
    {.name = "SplitOutside", .parts = Parts(), .split = 2048, .says = "hearth.bundle.split"},
    {.name = "Words",
     .parts = Parts("gate Q8_0 0 136", "check xxh32 136"),
     .says = "role type offset bytes"},
    {.name = "TooManyWords", .parts = Parts("gate Q8_0 0 136 7"), .says = "role type offset bytes"},
    {.name = "Number", .parts = Parts("gate Q8_0 -1 136"), .says = "role type offset bytes"},
    {.name = "HugeNumber",
     .parts = Parts("gate Q8_0 99999999999999999999 136"),
     .says = "role type offset bytes"},
    {.name = "Role",
     .parts = Parts("fc3 Q8_0 0 136"),
     .code = ErrorCode::kUnsupported,
     .says = "unknown role 'fc3'"},
    {.name = "BothKinds",
     .parts = Parts("fc1 Q8_0 0 136"),
     .code = ErrorCode::kUnsupported,
     .says = "unknown role 'up'"},
    {.name = "BiasOfGate",
     .parts = {"gate Q8_0 0 136", "bias F32 136 4", "check xxh32 140 8", "up Q8_0 512 136",
               "down Q8_0 648 136"},
     .code = ErrorCode::kUnsupported,
     .says = "unknown role 'bias'"},
    {.name = "TwoMatricesOneMissing",
     .parts = {"fc1 Q8_0 0 136", "check xxh32 136 8"},
     .says = "role fc2: expected 1, found 0"},
    {.name = "TypeOfBias",
     .parts = {"fc1 Q8_0 0 136", "bias F16 136 2", "check xxh32 138 8", "fc2 Q8_0 512 136"},
     .code = ErrorCode::kUnsupported,
     .says = "unknown type of a bias 'F16'"},
    {.name = "CheckInsideOfWhatItChecks",
     .parts = {"fc1 Q8_0 0 136", "check xxh32 136 8", "bias F32 144 4", "fc2 Q8_0 512 136"},
     .says = "part check of a bundle"},
    {.name = "BiasAfterTheSplit",
     .parts = {"fc1 Q8_0 0 136", "check xxh32 136 8", "fc2 Q8_0 512 136", "bias F32 648 4"},
     .says = "part bias of a bundle"},
    {.name = "Type",
     .parts = Parts("gate Q6_K 0 136"),
     .code = ErrorCode::kUnsupported,
     .says = "unknown type 'Q6_K'"},
    {.name = "CheckType",
     .parts = Parts("gate Q8_0 0 136", "check crc 160 8"),
     .code = ErrorCode::kUnsupported,
     .says = "unknown check 'crc'"},
    {.name = "Missing",
     .parts = {"gate Q8_0 0 136", "check xxh32 136 8", "up Q8_0 512 136"},
     .says = "role down: expected 1, found 0"},
    {.name = "Twice",
     .parts = Parts("gate Q8_0 0 136", "gate Q8_0 136 136"),
     .says = "role gate: expected 1, found 2"},
    {.name = "Length", .parts = Parts("gate Q8_0 0 137"), .says = "part gate of a bundle"},
    {.name = "Overlap",
     .parts = Parts("gate Q8_0 0 136", "check xxh32 128 8"),
     .says = "part check of a bundle"},
    {.name = "GateBehindSplit",
     .parts = Parts("gate Q8_0 1024 136", "check xxh32 136 8"),
     .says = "part gate of a bundle"},
    {.name = "UpBeforeSplit",
     .parts = Parts("gate Q8_0 0 136", "check xxh32 136 8", "up Q8_0 256 136"),
     .says = "part up of a bundle"},
    {.name = "DownOutside",
     .parts =
         Parts("gate Q8_0 0 136", "check xxh32 136 8", "up Q8_0 512 136", "down Q8_0 1408 136"),
     .says = "part down of a bundle"},
    {.name = "OffsetWraps",
     .parts = Parts("gate Q8_0 0 136", "check xxh32 136 8", "up Q8_0 512 136",
                    "down Q8_0 18446744073709551600 136"),
     .says = "part down of a bundle"},
};

INSTANTIATE_TEST_SUITE_P(All, BundleLayoutRefusalTest, testing::ValuesIn(kLayoutRefusals),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(BundleLayoutTest, WithoutPartsSaysSo) {
  GgufMetadata metadata("m.gguf");
  metadata.SetUint32(kFormatVersionKey, 1);
  EXPECT_THROW(ReadBundleLayout(metadata, 128, 512), Error);
}

}  // namespace
}  // namespace hearth
