// What the reader accepts, and that no bytes upset it; gguf_refusal_test.cc has the messages.
#include "format/gguf_parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "base/error.h"
#include "base/test_data.h"
#include "format/gguf.h"
#include "format/test_gguf_bytes.h"

namespace hearth {
namespace {

using testing::HasSubstr;
using Bytes = GgufTestBytes;

constexpr uint32_t kI8 = 24;

// Every kind of value, two tensors, data.
Bytes ValidFile(uint32_t version = 3) {
  Bytes b;
  b.Header(2, 15, version);
  b.Str("u8").Type(GgufType::kUint8).U8(200);
  b.Str("i8").Type(GgufType::kInt8).Put<int8_t>(-100);
  b.Str("u16").Type(GgufType::kUint16).Put<uint16_t>(60000);
  b.Str("i16").Type(GgufType::kInt16).Put<int16_t>(-30000);
  b.Str("u32").Type(GgufType::kUint32).U32(4000000000u);
  b.Str("i32").Type(GgufType::kInt32).Put<int32_t>(-2000000000);
  b.Str("f32").Type(GgufType::kFloat32).Put(1.5f);
  b.Str("bool").Type(GgufType::kBool).U8(1);
  b.Str("string").Type(GgufType::kString).Str("hello");
  b.Str("u64").Type(GgufType::kUint64).U64(1ull << 63);
  b.Str("i64").Type(GgufType::kInt64).Put<int64_t>(-5);
  b.Str("f64").Type(GgufType::kFloat64).Put(0.1);
  b.Str("strings").Type(GgufType::kArray).Type(GgufType::kString).U64(2).Str("a").Str("");
  b.Str("ints").Type(GgufType::kArray).Type(GgufType::kInt32).U64(2).U32(7).U32(8);
  b.Str("nested").Type(GgufType::kArray).Type(GgufType::kArray).U64(2);
  b.Type(GgufType::kBool).U64(1).U8(1);
  b.Type(GgufType::kFloat64).U64(0);
  b.Tensor("w", {4, 2}, kGgufTestF32, 0).Tensor("q", {32, 3, 2}, kGgufTestQ4_0, 32);
  b.PadTo(32);
  for (int i = 0; i < 8; ++i) b.Put(static_cast<float>(i));
  for (int i = 0; i < 6 * 18; ++i) b.U8(static_cast<uint8_t>(i));
  return b;
}

TEST(GgufParse, ReadsEveryKindOfValue) {
  for (const uint32_t version : {2u, 3u}) {
    const GgufFile file = OpenBytes(ValidFile(version).bytes());
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.alignment(), 32u);
    const GgufMetadata& m = file.metadata();
    EXPECT_EQ(m.values().size(), 15u);
    EXPECT_EQ(m.GetUint("u8"), 200u);
    EXPECT_EQ(m.FindInt("i8"), -100);
    EXPECT_EQ(m.GetUint("u16"), 60000u);
    EXPECT_EQ(m.FindInt("i16"), -30000);
    EXPECT_EQ(m.GetUint("u32"), 4000000000u);
    EXPECT_EQ(m.FindInt("i32"), -2000000000);
    EXPECT_EQ(m.GetFloat("f32"), 1.5);
    EXPECT_EQ(m.FindBool("bool"), true);
    EXPECT_EQ(m.GetString("string"), "hello");
    EXPECT_EQ(m.GetUint("u64"), 1ull << 63);
    EXPECT_EQ(m.FindInt("i64"), -5);
    EXPECT_EQ(m.GetFloat("f64"), 0.1);
    EXPECT_EQ(*m.FindStrings("strings"), (std::vector<std::string>{"a", ""}));
    EXPECT_EQ(m.FindInts("ints"), (std::vector<int64_t>{7, 8}));
    const auto& nested =
        std::get<std::vector<GgufArray>>(std::get<GgufArray>(m.FindOrNull("nested")->value).items);
    ASSERT_EQ(nested.size(), 2u);
    EXPECT_EQ(nested[0].element_type, GgufType::kBool);
    EXPECT_EQ(std::get<std::vector<uint8_t>>(nested[0].items), std::vector<uint8_t>{1});
    EXPECT_EQ(std::get<std::vector<double>>(nested[1].items).size(), 0u);
  }
}

TEST(GgufParse, ReadsTensors) {
  const Bytes bytes = ValidFile();
  const GgufFile file = OpenBytes(bytes.bytes());
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor& w = file.GetTensor("w");
  EXPECT_EQ(w.dtype, DType::kF32);
  EXPECT_EQ(w.num_dims, 2);
  EXPECT_EQ(w.ne, (std::array<uint64_t, 4>{4, 2, 1, 1}));
  EXPECT_EQ(w.bytes, 32u);
  const GgufTensor& q = file.GetTensor("q");
  EXPECT_EQ(q.bytes, 6u * 18);
  EXPECT_EQ(q.num_weights(), 192u);
  EXPECT_EQ(q.offset + q.bytes, bytes.size());
  std::array<std::byte, 3> read;
  file.ReadTensor(q, 100, read);
  EXPECT_EQ(std::to_integer<int>(read[2]), 102);
}

TEST(GgufParse, AcceptsAlignmentsFrom1To2To30) {
  for (const uint32_t alignment : {1u, 8u, 32u, 512u, 4096u, 1u << 30}) {
    Bytes b;
    b.Header(0, 1).PairU32("general.alignment", alignment);
    EXPECT_EQ(OpenBytes(b.bytes()).alignment(), alignment);
  }
  // With an alignment of 1 the data begins right after the directory.
  Bytes b;
  b.Header(1, 1).PairU32("general.alignment", 1).Tensor("w", {3}, kGgufTestF32, 0).Zeros(12);
  const GgufFile file = OpenBytes(b.bytes());
  EXPECT_EQ(file.GetTensor("w").offset + 12, b.size());
}

TEST(GgufParse, AcceptsTensorsInAnyOrderOfTheirData) {
  Bytes b;
  b.Header(2, 0)
      .Tensor("last", {8}, kGgufTestF32, 32)
      .Tensor("first", {8}, kGgufTestF32, 0)
      .PadTo(32)
      .Zeros(64);
  const GgufFile file = OpenBytes(b.bytes());
  EXPECT_EQ(file.tensors()[0].name, "last");
  EXPECT_EQ(file.GetTensor("last").offset, file.GetTensor("first").offset + 32);
}

TEST(GgufParse, AcceptsAHeaderWithoutTensorsOrData) {
  Bytes b;
  b.Header(0, 0);
  EXPECT_TRUE(OpenBytes(b.bytes()).tensors().empty());
}

TEST(GgufParse, RefusesAFileCutAnywhere) {
  const std::vector<std::byte> whole = ValidFile().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_THROW(OpenBytes(std::move(cut)), Error) << "cut to " << size << " bytes";
  }
}

TEST(GgufParse, SurvivesEveryChangeOfOneByte) {
  const std::vector<std::byte> whole = ValidFile().bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> changed = whole;
      changed[at] = static_cast<std::byte>(value);
      try {
        OpenBytes(std::move(changed));
      } catch (const Error&) {  // either outcome will do; anything else ends the test
      }
    }
  }
}

TEST(GgufParse, LimitsTheHeaderAndItsEntries) {
  // A sparse reader: a header that would fill more than the limit, without the memory for it.
  class Endless final : public BlockReader {
   public:
    explicit Endless(std::vector<std::byte> head) : head_(std::move(head)) {}
    const std::string& name() const override { return name_; }
    uint64_t size_bytes() const override { return uint64_t{1} << 40; }
    void ReadAt(uint64_t offset, std::span<std::byte> out) const override {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = offset + i < head_.size() ? head_[offset + i] : std::byte{0};
      }
    }

   private:
    std::string name_ = "endless";
    std::vector<std::byte> head_;
  };
  const auto message = [](const Bytes& bytes) -> std::string {
    try {
      ParseGgufPart(Endless(bytes.bytes()));
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(Bytes().Header(2000000, 0)),
              HasSubstr("tensor count: expected at most 1048"));
  EXPECT_THAT(message(Bytes().Header(0, 2000000)), HasSubstr("metadata count: expected at most 1"));
  Bytes array;
  array.Header(0, 1).Str("a.b").Type(GgufType::kArray).Type(GgufType::kUint8).U64(1ull << 30);
  EXPECT_THAT(message(array), HasSubstr("256 MiB left"));
}

// What takes most memory for its bytes in a file: the smallest entries there are.
TEST(GgufParse, TakesAtMostAFewTimesTheMemoryOfAHeader) {
  constexpr uint32_t kCount = 20000;
  std::map<std::string, Bytes> headers;
  Bytes& pairs = headers["pairs"].Header(0, kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    pairs.U64(3).Raw({reinterpret_cast<const char*>(&i), 3}).Type(GgufType::kBool).U8(0);
  }
  const auto array = [](Bytes& b, GgufType type) -> Bytes& {
    return b.Header(0, 1).Str("a").Type(GgufType::kArray).Type(type).U64(kCount);
  };
  Bytes& strings = array(headers["strings"], GgufType::kString);
  for (uint32_t i = 0; i < kCount; ++i) strings.Str("");
  Bytes& empty_arrays = array(headers["empty arrays"], GgufType::kArray);
  for (uint32_t i = 0; i < kCount; ++i) empty_arrays.Type(GgufType::kUint8).U64(0);
  Bytes& arrays = array(headers["arrays of one"], GgufType::kArray);
  for (uint32_t i = 0; i < kCount; ++i) arrays.Type(GgufType::kUint8).U64(1).U8(7);
  Bytes& tensors = headers["tensors"].Header(kCount, 0);
  for (uint32_t i = 0; i < kCount; ++i) {
    tensors.U64(3).Raw({reinterpret_cast<const char*>(&i), 3}).U32(1).U64(1).U32(kI8);
    tensors.U64(uint64_t{i} * 32);
  }
  tensors.PadTo(32).Zeros(kCount * 32);

  for (const auto& [name, bytes] : headers) {
    const size_t file_bytes = bytes.size();
    const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    const GgufFile file = OpenBytes(bytes.bytes());
    const size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    // Once for the reader's own copy, and what the entries take.
    EXPECT_LE(after - before, file_bytes + 10 * file_bytes) << name;
  }
}

TEST(GgufParse, HandlesEveryFileOfTheFuzzCorpus) {
  HEARTH_NEED_SHARED("data/fuzz/gguf");
  int refused = 0;
  int accepted = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SharedPath("data/fuzz/gguf"))) {
    try {
      GgufFile::Open(entry.path().string());
      ++accepted;
    } catch (const Error& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr(entry.path().filename().string()));
    }
  }
  EXPECT_GT(refused, 200);
  EXPECT_LT(accepted, 20);
}

// Converters in other languages leave any byte for true.
TEST(GgufParseTest, EveryBoolByteButZeroIsTrue) {
  GgufTestBytes b;
  b.Header(0, 4);
  b.Str("yes").Type(GgufType::kBool).U8(255);
  b.Str("also").Type(GgufType::kBool).U8(2);
  b.Str("no").Type(GgufType::kBool).U8(0);
  b.Str("list").Type(GgufType::kArray).Type(GgufType::kBool).U64(3).U8(0).U8(255).U8(1);
  const GgufFile file = OpenBytes(b.bytes());
  EXPECT_EQ(file.metadata().FindBool("yes"), true);
  EXPECT_EQ(file.metadata().FindBool("also"), true);
  EXPECT_EQ(file.metadata().FindBool("no"), false);
  const GgufArray& list = std::get<GgufArray>(file.metadata().FindOrNull("list")->value);
  EXPECT_EQ(std::get<std::vector<uint8_t>>(list.items), (std::vector<uint8_t>{0, 1, 1}));
}

}  // namespace
}  // namespace hearth
