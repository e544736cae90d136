#include "prepare/pack/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checksum.h"
#include "base/error.h"
#include "format/gguf_parse.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class VerifyTest : public ::testing::Test {
 protected:
  void Make(const char* more) {
    MakeModel(folder_.Path("m"), ShapeText(96, 40, more), DType::kF16);
    const GgufFile source = GgufFile::Open(folder_.Path("m"));
    const ModelProfile profile = MakeProfile(source);
    PackModel(source, {.profile = &profile, .quant = DType::kQ8_0}, folder_.Path("p"));
    const std::string text = folder_.Bytes("p");
    bytes_.resize(text.size());
    std::memcpy(bytes_.data(), text.data(), text.size());
  }

  static GgufFile Open(std::vector<std::byte> bytes) {
    std::vector<std::unique_ptr<BlockReader>> parts;
    parts.push_back(MakeMemoryReader("p.gguf", std::move(bytes)));
    return GgufFile::FromReaders(std::move(parts));
  }

  // What is said when the byte at `offset` has one bit flipped.
  std::string MessageFor(uint64_t offset, int threads = 1) const {
    std::vector<std::byte> flipped = bytes_;
    flipped[offset] ^= std::byte{8};
    try {
      VerifyPackedFile(Open(std::move(flipped)), threads);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  TestFolder folder_{"hearth_verify"};
  std::vector<std::byte> bytes_;
};

TEST_F(VerifyTest, WhatWasPackedIsIntact) {
  for (const char* more : {kDenseShape, kExpertShape}) {
    Make(more);
    const GgufFile file = Open(bytes_);
    for (const int threads : {1, 3}) {
      uint64_t last = 0;
      const VerifyResult result =
          VerifyPackedFile(file, threads, [&](uint64_t done, uint64_t total) {
            EXPECT_GE(done, last);
            EXPECT_LE(done, total);
            last = done;
          });
      EXPECT_EQ(result.bytes, bytes_.size());
      EXPECT_EQ(result.bundles, more == kDenseShape ? 80u : 240u);
      EXPECT_EQ(result.tensors + 2, file.tensors().size());
    }
  }
}

TEST_F(VerifyTest, EveryByteOfTheDataCounts) {
  Make(kExpertShape);
  const GgufFile file = Open(bytes_);
  std::vector<std::string> expected(bytes_.size());
  for (const GgufTensor& tensor : file.tensors()) {
    const uint64_t end = (tensor.offset + tensor.bytes + 511) / 512 * 512;
    for (uint64_t at = tensor.offset; at < end; ++at) {
      const bool is_padding = at >= tensor.offset + tensor.bytes;
      if (is_padding || !LayerOfBundle(tensor.name)) {
        expected[at] = "tensor '" + tensor.name + "'";
        continue;
      }
      const uint64_t bundle = (at - tensor.offset) / tensor.ne[0];
      expected[at] = "layer " + std::to_string(*LayerOfBundle(tensor.name)) + ", expert " +
                     std::to_string(bundle / 40) + ", neuron " + std::to_string(bundle % 40) + " ";
    }
  }
  // Every byte of the last bundle and some before and after it, and a sample of all others.
  const GgufTensor& bundles = file.GetTensor(BundleTensorName(1));
  const uint64_t last = bundles.offset + bundles.bytes - bundles.ne[0];
  for (uint64_t at = file.header_bytes(0); at < bytes_.size(); at += at >= last - 20 ? 1 : 397) {
    ASSERT_NE(expected[at], "") << at;
    EXPECT_THAT(MessageFor(at),
                AllOf(HasSubstr("p.gguf: "), HasSubstr(expected[at]), HasSubstr("altered after")))
        << at;
  }
}

TEST_F(VerifyTest, WhatEveryPackedFileHasMustBeThere) {
  Make(kDenseShape);
  const GgufFile file = Open(bytes_);
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  bytes_[text.find("blk.0.ffn_order")] = std::byte{'x'};
  // As a program that means it would write it.
  const uint64_t hash_end = FindGgufValueEnd(file.part(0), kHeaderHashKey);
  const auto header = std::span(bytes_).first(file.header_bytes(0));
  const auto hash = header.subspan(hash_end - 8, 8);
  std::fill(hash.begin(), hash.end(), std::byte{0});
  const uint64_t stated = Checksum(header);
  std::memcpy(hash.data(), &stated, sizeof(stated));
  EXPECT_THAT([&] { VerifyPackedFile(Open(bytes_), 1); },
              ThrowsMessage<Error>(HasSubstr("blk.0.ffn_order")));
}

TEST_F(VerifyTest, NamesThePartOfABundle) {
  Make(kDenseShape);
  const GgufFile file = Open(bytes_);
  const GgufTensor& bundles = file.GetTensor(BundleTensorName(0));
  const BundleLayout layout = ReadBundleLayout(file.metadata(), 96, bundles.ne[0]);
  const uint64_t begin = bundles.offset + 7 * layout.stride;
  const auto message = [&](uint64_t at) { return MessageFor(begin + at); };
  EXPECT_THAT(message(0),
              HasSubstr("layer 0, neuron 7 was altered after it was written (its gate"));
  EXPECT_THAT(message(layout.Part(BundleRole::kCheck).offset), HasSubstr("its gate"));
  EXPECT_THAT(message(layout.Part(BundleRole::kCheck).offset + 4), HasSubstr("its up, its down"));
  EXPECT_THAT(message(layout.Part(BundleRole::kDown).offset), HasSubstr("its up, its down"));
  EXPECT_THAT(message(layout.split - 1), HasSubstr("between its parts"));
  EXPECT_THAT(message(layout.stride - 1), HasSubstr("between its parts"));
}

TEST_F(VerifyTest, TheFirstFlawIsReportedWhateverTheThreads) {
  Make(kDenseShape);
  const GgufFile file = Open(bytes_);
  const uint64_t first = file.GetTensor(BundleTensorName(0)).offset;
  for (uint64_t at = first; at < bytes_.size(); at += 512) bytes_[at] ^= std::byte{1};
  for (const int threads : {1, 2, 5}) {
    try {
      VerifyPackedFile(Open(bytes_), threads);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("layer 0, neuron 0 "));
    }
  }
}

TEST_F(VerifyTest, TheHeaderIsChecked) {
  Make(kDenseShape);
  const std::string text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  // The first letter of the model's name.
  EXPECT_THAT(MessageFor(text.find("tested")), HasSubstr("header was altered"));
}

}  // namespace
}  // namespace hearth
