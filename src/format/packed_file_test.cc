#include "format/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "format/gguf_parse.h"
#include "format/test_gguf_bytes.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kHidden = 96;
constexpr uint64_t kNeurons = 5, kExperts = 3;

// A packed file of two layers, one of them with experts, and two other tensors.
struct Made {
  std::vector<std::byte> bytes;
  std::vector<GgufTensorDecl> tensors;
};

class PackedFileTest : public ::testing::Test {
 protected:
  PackedFileTest()
      : path_(fs::temp_directory_path() / ("hearth_packed_" + std::to_string(getpid()))) {}
  ~PackedFileTest() override { fs::remove(path_); }

  static GgufMetadata Metadata() {
    GgufMetadata metadata;
    metadata.SetString("general.architecture", "llama");
    metadata.SetUint32("llama.embedding_length", kHidden);
    metadata.SetUint32("split.count", 1);
    SetPackedMetadata(MakeBundleLayout(DType::kQ8_0, kHidden), 77, &metadata);
    return metadata;
  }

  static std::vector<GgufTensorDecl> Tensors() {
    const uint64_t stride = MakeBundleLayout(DType::kQ8_0, kHidden).stride;
    return {{"token_embd.weight", DType::kF32, {kHidden, 7}},
            {"blk.0.ffn_order", DType::kI32, {kNeurons}},
            {"blk.0.ffn_bundle", DType::kI8, {stride, kNeurons}},
            {"blk.1.ffn_order", DType::kI32, {kNeurons, kExperts}},
            {"blk.1.ffn_rate", DType::kF32, {kNeurons, kExperts}},
            {"blk.1.ffn_bundle", DType::kI8, {stride, kNeurons, kExperts}},
            {"output_norm.weight", DType::kF32, {kHidden}}};
  }

  std::vector<std::byte> Make(const GgufMetadata& metadata,
                              const std::vector<GgufTensorDecl>& tensors) const {
    PackedWriter writer(path_, metadata, tensors);
    std::mt19937 random(3);
    for (const GgufTensorDecl& tensor : tensors) {
      uint64_t left = InfoOf(tensor.dtype).block_bytes;
      for (const uint64_t n : tensor.ne) left *= n;
      while (left > 0) {  // pieces of odd lengths, as callers write them
        std::vector<std::byte> piece(std::min<uint64_t>(left, 1 + random() % 700));
        for (std::byte& b : piece) b = static_cast<std::byte>(random());
        writer.Append(piece);
        left -= piece.size();
      }
    }
    writer.Finish();
    const std::string text = ReadWholeFile(path_);
    std::vector<std::byte> bytes(text.size());
    std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
  }
  std::vector<std::byte> Make() const { return Make(Metadata(), Tensors()); }

  void ExpectRefused(std::vector<std::byte> bytes, const char* words,
                     ErrorCode code = ErrorCode::kCorrupt) const {
    try {
      const GgufFile file = OpenBytes(std::move(bytes));
      CheckPackedFile(file);
      FAIL() << "accepted, and not for " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(words));
      EXPECT_THAT(error.what(), HasSubstr("test.gguf"));
    }
  }

  std::string path_;
};

TEST_F(PackedFileTest, WhatIsWrittenIsAccepted) {
  const std::vector<std::byte> bytes = Make();
  const GgufFile file = OpenBytes(bytes);
  EXPECT_NO_THROW(CheckPackedFile(file));
  EXPECT_TRUE(IsPacked(file.metadata()));
  EXPECT_EQ(file.alignment(), kBundleAlignment);
  EXPECT_EQ(file.metadata().GetUint(kSourceHashKey), 77u);
  EXPECT_FALSE(file.metadata().Has("split.count"));
  for (const GgufTensor& tensor : file.tensors()) {
    EXPECT_EQ(tensor.offset % kBundleAlignment, 0u) << tensor.name;
  }
  // Equal bytes have equal hashes, others do not.
  const uint64_t first = *StatedTensorHash(file, 0);
  EXPECT_NE(first, *StatedTensorHash(file, 1));
  EXPECT_FALSE(StatedTensorHash(file, 2));
  EXPECT_FALSE(StatedTensorHash(file, 5));
  EXPECT_FALSE(StatedTensorHash(file, 7));
}

TEST_F(PackedFileTest, EveryFlippedBitOfTheHeaderIsNoticed) {
  const std::vector<std::byte> bytes = Make();
  const uint64_t header_bytes = OpenBytes(bytes).header_bytes(0);
  ASSERT_GT(header_bytes, 512u);
  for (uint64_t i = 0; i < header_bytes; ++i) {
    std::vector<std::byte> flipped = bytes;
    flipped[i] ^= std::byte{0x10};
    bool is_refused = false;
    try {
      const GgufFile file = OpenBytes(std::move(flipped));
      // A name that no longer says what it said makes it another kind of file.
      if (!IsPacked(file.metadata())) continue;
      CheckPackedFile(file);
    } catch (const Error&) {
      is_refused = true;
    }
    EXPECT_TRUE(is_refused) << "byte " << i;
  }
}

TEST_F(PackedFileTest, AnAlteredHeaderSaysSo) {
  std::vector<std::byte> bytes = Make();
  const GgufFile file = OpenBytes(bytes);
  bytes[FindGgufValueEnd(file.part(0), "llama.embedding_length") - 1] = std::byte{1};
  ExpectRefused(bytes, "header was altered");
  bytes = Make();
  bytes[FindGgufValueEnd(file.part(0), kHeaderHashKey) - 1] ^= std::byte{1};
  ExpectRefused(bytes, "header was altered");
}

TEST_F(PackedFileTest, EveryLengthButItsOwnIsRefused) {
  const std::vector<std::byte> bytes = Make();
  for (size_t size = bytes.size() - 600; size < bytes.size(); size += 7) {
    std::vector<std::byte> cut = bytes;
    cut.resize(size);
    EXPECT_THROW(
        {
          const GgufFile file = OpenBytes(std::move(cut));
          CheckPackedFile(file);
        },
        Error)
        << size;
  }
  std::vector<std::byte> longer = bytes;
  longer.resize(bytes.size() + 1);
  ExpectRefused(longer, "size");
}

TEST_F(PackedFileTest, OtherVersionsAreNamed) {
  GgufMetadata metadata = Metadata();
  metadata.SetUint32(kFormatVersionKey, 2);
  ExpectRefused(Make(metadata, Tensors()), "hearth.format_version: expected 1, found 2",
                ErrorCode::kUnsupported);
}

TEST_F(PackedFileTest, OddlyShapedBundlesAreRefused) {
  auto tensors = Tensors();
  tensors[2].dtype = DType::kI16;
  ExpectRefused(Make(Metadata(), tensors), "type of blk.0.ffn_bundle");
  tensors = Tensors();
  tensors[2].ne[0] = 1000;
  ExpectRefused(Make(Metadata(), tensors), "shape of blk.0.ffn_bundle");
  tensors = Tensors();
  tensors[3].ne = {kExperts, kNeurons};
  ExpectRefused(Make(Metadata(), tensors), "shape of blk.1.ffn_order: expected 5 x 3, found 3 x 5");
  tensors = Tensors();
  tensors[4].dtype = DType::kI32;
  ExpectRefused(Make(Metadata(), tensors), "type of blk.1.ffn_rate");
  GgufMetadata metadata = Metadata();
  metadata.SetUint32("general.alignment", 64);
  ExpectRefused(Make(metadata, Tensors()), "general.alignment");
}

TEST_F(PackedFileTest, OrderAndRatesMayBeMissing) {
  auto tensors = Tensors();
  tensors.erase(tensors.begin() + 3, tensors.begin() + 5);
  const std::vector<std::byte> bytes = Make(Metadata(), tensors);
  EXPECT_NO_THROW(CheckPackedFile(OpenBytes(bytes)));
}

TEST_F(PackedFileTest, NamesOfBundles) {
  EXPECT_EQ(LayerOfBundle("blk.0.ffn_bundle"), 0);
  EXPECT_EQ(LayerOfBundle(BundleTensorName(123)), 123);
  for (const char* name : {"blk..ffn_bundle", "blk.ffn_bundle", "blk.-1.ffn_bundle",
                           "blk.1x.ffn_bundle", "blk.1.ffn_bundles", "a.blk.1.ffn_bundle", "",
                           "blk.99999999999999999999.ffn_bundle", "blk.1.ffn_order"}) {
    EXPECT_EQ(LayerOfBundle(name), std::nullopt) << name;
  }
}

TEST_F(PackedFileTest, ModelHashTellsModelsApart) {
  GgufMetadata metadata;
  metadata.SetString("general.architecture", "llama");
  const auto make = [&](int changed_tensor, uint64_t changed_byte) {
    {
      GgufWriter writer(path_, metadata, {{"a", DType::kF32, {5000}}, {"b", DType::kF32, {3}}});
      for (int t = 0; t < 2; ++t) {
        std::vector<std::byte> bytes(t == 0 ? 20000 : 12, std::byte{9});
        if (t == changed_tensor) bytes[changed_byte] = std::byte{1};
        writer.Append(bytes);
      }
      writer.Finish();
    }
    return ModelHash(GgufFile::Open(path_));
  };
  const uint64_t original = make(-1, 0);
  EXPECT_EQ(original, make(-1, 0));
  EXPECT_NE(original, make(0, 0));
  EXPECT_NE(original, make(0, 4095));
  EXPECT_NE(original, make(0, 19999));
  EXPECT_NE(original, make(1, 5));
  metadata.SetString("general.name", "another");
  EXPECT_NE(original, make(-1, 0));
}

}  // namespace
}  // namespace hearth
