// One refusal after another: which code, and that the sentence names the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/gguf.h"
#include "format/test_gguf_bytes.h"

namespace hearth {
namespace {

using testing::HasSubstr;
using testing::Not;
using Bytes = GgufTestBytes;

constexpr uint64_t k2To32 = 1ull << 32;
constexpr auto kCorrupt = ErrorCode::kCorrupt;
constexpr auto kUnsupported = ErrorCode::kUnsupported;

Bytes OneTensor(const std::vector<uint64_t>& ne, uint32_t type, uint64_t offset, size_t data) {
  Bytes b;
  b.Header(1, 0).Tensor("w", ne, type, offset).PadTo(32).Zeros(data);
  return b;
}

struct Refusal {
  const char* name;
  Bytes bytes;
  ErrorCode code;
  std::vector<std::string> says;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

// A file with one key; its value is to be appended.
Bytes Key() { return Bytes().Header(0, 1).Str("some.key"); }

Bytes ArrayOf(GgufType type, uint64_t count) {
  return Key().Type(GgufType::kArray).Type(type).U64(count);
}

Bytes Alignment(uint32_t alignment) {
  return Bytes().Header(0, 1).PairU32("general.alignment", alignment);
}

// An array of one array of one array of ...
Bytes DeepArray() {
  Bytes b = ArrayOf(GgufType::kArray, 1);
  for (int i = 0; i < 50; ++i) b.Type(GgufType::kArray).U64(1);
  return b;
}

Bytes TwoTensors(const char* first, const char* second, uint64_t second_offset) {
  return Bytes()
      .Header(2, 0)
      .Tensor(first, {8}, kGgufTestF32, 0)
      .Tensor(second, {8}, kGgufTestF32, second_offset)
      .Zeros(96);
}

std::vector<Refusal> HeaderRefusals() {
  return {
      {"version 1", Bytes().Header(0, 0, 1), kUnsupported, {"version", "found 1"}},
      {"version 4", Bytes().Header(0, 0, 4), kUnsupported, {"version", "found 4"}},
      {"big endian", Bytes().Header(0, 0, 3u << 24), kUnsupported, {"big-endian"}},
      {"cut version", Bytes().Raw("GGUF").U8(3), kCorrupt, {"version", "4 bytes"}},
      {"tensor count",
       Bytes().Header(UINT64_MAX, 0),
       kCorrupt,
       {"tensor count", "18446744073709551615"}},
      {"metadata count",
       Bytes().Header(0, 1ull << 40),
       kCorrupt,
       {"metadata count", "1099511627776"}},
  };
}

std::vector<Refusal> KeyRefusals() {
  return {
      {"key length beyond the file",
       Bytes().Header(0, 1).U64(1ull << 60).Zeros(20),
       kCorrupt,
       {"metadata pair 1 of 1", "key length"}},
      {"key length zero",
       Bytes().Header(0, 1).Str("").Type(GgufType::kUint32).U32(1).Zeros(9),
       kCorrupt,
       {"key length", "1 to 65535"}},
      {"key too long",
       Bytes().Header(0, 1).Str(std::string(65536, 'k')).Type(GgufType::kBool).U8(0),
       kCorrupt,
       {"key length", "65536"}},
      {"key twice",
       Bytes().Header(0, 2).PairU32("a.b", 1).PairU32("a.b", 1),
       kCorrupt,
       {"key 'a.b'", "name"}},
  };
}

std::vector<Refusal> ValueRefusals() {
  return {
      {"value type 13",
       Key().U32(13).U64(0),
       kCorrupt,
       {"key 'some.key'", "value type", "found 13"}},
      {"number cut",
       Key().Type(GgufType::kUint64).U32(1),
       kCorrupt,
       {"key 'some.key'", "value", "8 bytes", "4 before the end"}},
      {"string cut",
       Key().Type(GgufType::kString).U64(10).Raw("short"),
       kCorrupt,
       {"key 'some.key'", "string length", "found 10"}},
      {"string of 2^64-1",
       Key().Type(GgufType::kString).U64(UINT64_MAX),
       kCorrupt,
       {"key 'some.key'", "string length"}},
  };
}

std::vector<Refusal> ArrayRefusals() {
  return {
      {"array item type",
       Key().Type(GgufType::kArray).U32(99).U64(0),
       kCorrupt,
       {"key 'some.key'", "array item type", "found 99"}},
      {"array of 2^61 doubles",
       ArrayOf(GgufType::kFloat64, 1ull << 61).Zeros(64),
       kCorrupt,
       {"key 'some.key'", "array length", "at most 8", "2305843009213693952"}},
      {"array of strings, count",
       ArrayOf(GgufType::kString, 5).Zeros(39),
       kCorrupt,
       {"key 'some.key'", "array length", "at most 4", "found 5"}},
      {"array of strings, item",
       ArrayOf(GgufType::kString, 1).U64(100),
       kCorrupt,
       {"key 'some.key'", "string length", "found 100"}},
      {"array of arrays, count",
       ArrayOf(GgufType::kArray, 1ull << 50).Zeros(64),
       kCorrupt,
       {"key 'some.key'", "array length"}},
      {"array nesting", DeepArray(), kUnsupported, {"key 'some.key'", "array nesting", "4 levels"}},
  };
}

std::vector<Refusal> AlignmentRefusals() {
  return {
      {"alignment 0", Alignment(0), kCorrupt, {"general.alignment", "power of two", "found 0"}},
      {"alignment 48", Alignment(48), kCorrupt, {"general.alignment", "found 48"}},
      {"alignment 2^31", Alignment(1u << 31), kCorrupt, {"general.alignment", "2147483648"}},
      {"alignment a string",
       Bytes().Header(0, 1).Str("general.alignment").Type(GgufType::kString).Str("x"),
       kCorrupt,
       {"general.alignment", "integer", "string"}},
  };
}

std::vector<Refusal> NameRefusals() {
  return {
      {"name empty",
       Bytes().Header(1, 0).Tensor("", {8}, kGgufTestF32, 0).Zeros(64),
       kCorrupt,
       {"tensor 1 of 1", "name length", "found 0"}},
      {"name too long",
       Bytes().Header(1, 0).Tensor(std::string(1024, 'n'), {8}, kGgufTestF32, 0).Zeros(64),
       kCorrupt,
       {"name length", "1023", "1024"}},
      {"name twice", TwoTensors("w", "w", 32), kCorrupt, {"tensor 'w'", "name"}},
      {"no dimensions",
       OneTensor({}, kGgufTestF32, 0, 64),
       kCorrupt,
       {"tensor 'w'", "number of dimensions", "found 0"}},
      {"five dimensions",
       OneTensor({1, 1, 1, 1, 1}, kGgufTestF32, 0, 64),
       kCorrupt,
       {"tensor 'w'", "number of dimensions", "1 to 4", "found 5"}},
  };
}

std::vector<Refusal> ShapeRefusals() {
  return {
      {"dimension 0",
       OneTensor({8, 0}, kGgufTestF32, 0, 64),
       kCorrupt,
       {"tensor 'w'", "dimensions", "found 0"}},
      {"product 2^64",
       OneTensor({k2To32, k2To32}, kGgufTestF32, 0, 64),
       kCorrupt,
       {"tensor 'w'", "dimensions", "2^62"}},
      {"product wraps to 64",
       OneTensor({1ull << 63, 2, 64}, kGgufTestF32, 0, 64),
       kCorrupt,
       {"tensor 'w'", "dimensions", "2^62"}},
      {"bytes overflow",
       OneTensor({1ull << 61}, kGgufTestF32, 0, 64),
       kCorrupt,
       {"tensor 'w'", "dimensions", "2^62 bytes"}},
      {"not whole blocks",
       OneTensor({48, 2}, kGgufTestQ4_0, 0, 640),
       kCorrupt,
       {"tensor 'w'", "first dimension", "multiple of 32 for Q4_0", "found 48"}},
  };
}

std::vector<Refusal> TypeRefusals() {
  return {
      {"type unknown", OneTensor({32}, 1000, 0, 64), kUnsupported, {"tensor 'w'", "type", "1000"}},
      {"type of others",
       OneTensor({256}, 15, 0, 640),
       kUnsupported,
       {"tensor 'w'", "type 15 (Q8_K)", "get the model in another type"}},
      {"type withdrawn",
       OneTensor({32}, 4, 0, 64),
       kUnsupported,
       {"tensor 'w'", "type 4 (Q4_2, which ggml has withdrawn)", "Q4_0"}},
      {"type withdrawn later",
       OneTensor({32}, 31, 0, 64),
       kUnsupported,
       {"tensor 'w'", "type 31 (Q4_0_4_4, which ggml has withdrawn)"}},
      {"type withdrawn, of a fork too",
       OneTensor({256}, 36, 0, 640),
       kUnsupported,
       {"type 36 (IQ4_NL_4_4 or bitnet.cpp's I2_S, which ggml has withdrawn)",
        "get the model in another type"}},
      {"type of a fork",
       OneTensor({256}, 144, 0, 640),
       kUnsupported,
       {"type 144 (IQ4_KS, which only ik_llama.cpp or another fork has)", "a type of ggml's"}},
  };
}

std::vector<Refusal> PlacementRefusals() {
  return {
      {"misaligned",
       OneTensor({8}, kGgufTestF32, 16, 64),
       kCorrupt,
       {"tensor 'w'", "offset", "multiple of the alignment 32", "found 16"}},
      {"beyond the end",
       OneTensor({8}, kGgufTestF32, 64, 64),
       kCorrupt,
       {"tensor 'w'", "inside the file"}},
      {"offset near 2^64",
       OneTensor({8}, kGgufTestF32, UINT64_MAX - 31, 64),
       kCorrupt,
       {"tensor 'w'", "inside the file"}},
      {"one byte short",
       OneTensor({8}, kGgufTestF32, 0, 31),
       kCorrupt,
       {"tensor 'w'", "inside the file", "32 bytes"}},
      {"data section beyond the end",
       Bytes().Header(1, 0).Tensor("w", {1}, kGgufTestF32, 0),
       kCorrupt,
       {"tensor 'w'", "inside the file"}},
      {"overlap",
       Bytes()
           .Header(3, 0)
           .Tensor("c", {8}, kGgufTestF32, 96)
           .Tensor("a", {9}, kGgufTestF32, 0)
           .Tensor("b", {8}, kGgufTestF32, 32)
           .Zeros(256),
       kCorrupt,
       {"tensor 'b'", "offset", "after tensor 'a'"}},
      {"same place", TwoTensors("a", "b", 0), kCorrupt, {"offset", "after tensor"}},
      {"control characters in a name",
       Bytes().Header(1, 0).Tensor("\n\x1b[31m", {0}, kGgufTestF32, 0).Zeros(64),
       kCorrupt,
       {"tensor '\\x0a\\x1b[31m'"}},
  };
}

std::vector<Refusal> SplitRefusals() {
  return {
      {"a part alone",
       Bytes().Header(0, 2).PairU16("split.no", 0).PairU16("split.count", 2),
       kCorrupt,
       {"split.count", "expected 1", "found 2"}},
      {"split.no without a set",
       Bytes().Header(0, 1).PairU16("split.no", 3),
       kCorrupt,
       {"split.no", "expected 0", "found 3"}},
      {"split.count too large",
       Bytes().Header(0, 1).PairU32("split.count", 65536),
       kCorrupt,
       {"split.count", "65536"}},
      {"split.tensors.count",
       Bytes().Header(0, 1).PairU32("split.tensors.count", 9),
       kCorrupt,
       {"split.tensors.count", "expected 0", "found 9"}},
  };
}

std::vector<Refusal> ForeignFiles() {
  const auto raw = [](std::string_view text) -> Bytes { return Bytes().Raw(text); };
  return {
      {"empty", raw(""), kCorrupt, {"magic number", "an empty file"}},
      {"three bytes", raw("GGU"), kUnsupported, {"magic number", "a text file ('GGU'"}},
      {"zeros", Bytes().Zeros(100), kCorrupt, {"zero bytes"}},
      {"noise", raw("\x01\xff\x80\x02"), kCorrupt, {"the bytes '\\x01\\xff\\x80\\x02'"}},
      {"text", raw("To be, or not to be\n"), kUnsupported, {"a text file ('To be, or not"}},
      {"json", raw("{\"a\": 1}"), kUnsupported, {"a text file"}},
      {"html", raw("<!DOCTYPE html>"), kUnsupported, {"an HTML page", "get the file again"}},
      {"html later", raw("\xef\xbb\xbf\n  <HTML lang=en>"), kUnsupported, {"an HTML page"}},
      {"not found", raw("Entry not found"), kUnsupported, {"'Entry not found'", "download?"}},
      {"lfs",
       raw("version https://git-lfs.github.com/spec/v1\n"),
       kUnsupported,
       {"Git LFS pointer", "git lfs pull"}},
      {"zip", raw(std::string_view("PK\x03\x04\0\0", 6)), kUnsupported, {"zip", "PyTorch"}},
      {"pickle", raw("\x80\x02}q"), kUnsupported, {"pickle"}},
      {"ggjt", raw("tjgg"), kUnsupported, {"before GGUF"}},
      {"swapped", raw("FUGG"), kUnsupported, {"big-endian"}},
      {"safetensors",
       Bytes().U64(14).Raw("{\"__metadata__\":{}}").Zeros(9),
       kUnsupported,
       {"a safetensors file", "hearth convert FOLDER -o FILE.gguf"}},
  };
}

class GgufRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(GgufRefusal, IsOneSentenceThatNamesTheField) {
  const Refusal& refusal = GetParam();
  try {
    OpenBytes(refusal.bytes.bytes());
    FAIL() << refusal.name << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), refusal.code) << error.what();
    EXPECT_EQ(error.where(), "test.gguf");
    for (const std::string& text : refusal.says) EXPECT_THAT(error.what(), HasSubstr(text));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
  }
}

std::string NameOf(const testing::TestParamInfo<Refusal>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Header, GgufRefusal, testing::ValuesIn(HeaderRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Key, GgufRefusal, testing::ValuesIn(KeyRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Value, GgufRefusal, testing::ValuesIn(ValueRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Array, GgufRefusal, testing::ValuesIn(ArrayRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Alignment, GgufRefusal, testing::ValuesIn(AlignmentRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Name, GgufRefusal, testing::ValuesIn(NameRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Shape, GgufRefusal, testing::ValuesIn(ShapeRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Type, GgufRefusal, testing::ValuesIn(TypeRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Placement, GgufRefusal, testing::ValuesIn(PlacementRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Split, GgufRefusal, testing::ValuesIn(SplitRefusals()), NameOf);
INSTANTIATE_TEST_SUITE_P(Foreign, GgufRefusal, testing::ValuesIn(ForeignFiles()), NameOf);

}  // namespace
}  // namespace hearth
