#include "format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> File(const std::string& json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::vector<std::byte> bytes(sizeof(length) + json.size() + data_bytes);
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), json.data(), json.size());
  return bytes;
}

SafetensorsHeader Read(std::vector<std::byte> bytes) {
  return ReadSafetensorsHeader(*MakeMemoryReader("m.safetensors", std::move(bytes)));
}

constexpr char kGood[] =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
    R"("b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";

TEST(SafetensorsTest, ReadsTheDirectory) {
  const SafetensorsHeader header = Read(File(kGood, 16));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::kBF16);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(header.tensors[0].offset, 8 + std::strlen(kGood) + 4);
  EXPECT_EQ(header.tensors[0].bytes, 12u);
  EXPECT_TRUE(header.tensors[1].shape.empty());
  EXPECT_EQ(header.tensors[1].bytes, 4u);
  EXPECT_TRUE(Read(File("{}  ", 0)).tensors.empty());
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = File(kGood, 16);
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<int64_t>(size));
    EXPECT_THROW(Read(std::move(cut)), Error) << size;
  }
}

TEST(SafetensorsTest, SaysWhatIsWrong) {
  const auto message = [](const std::string& tensor) {
    try {
      Read(File(R"({"t":)" + tensor + "}", 64));
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return std::string("accepted");
  };
  const auto fields = [](const char* dtype, const char* shape, const char* range) {
    return std::string(R"({"dtype":)") + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" +
           range + "}";
  };
  EXPECT_EQ(message(fields(R"("F32")", "[4,4]", "[0,64]")), "accepted");
  EXPECT_THAT(message(R"({},"t":{})"), HasSubstr("key 't' is there twice"));
  EXPECT_THAT(message(std::string(100000, '[') + std::string(100000, ']')),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(message("7"), HasSubstr("corrupt: m.safetensors: tensor 't'"));
  EXPECT_THAT(message("{}"), HasSubstr("dtype"));
  EXPECT_EQ(message(fields(R"("F8_E4M3")", "[64]", "[0,64]")), "accepted");
  EXPECT_THAT(message(fields(R"("F8_E5M2")", "[4]", "[0,4]")),
              HasSubstr("unsupported: m.safetensors: tensor 't': dtype"));
  EXPECT_THAT(message(fields("3", "[4]", "[0,16]")), HasSubstr("dtype"));
  EXPECT_THAT(message(fields(R"("F32")", "4", "[0,16]")), HasSubstr("shape: expected a list"));
  EXPECT_THAT(message(fields(R"("F32")", "[-4]", "[0,16]")), HasSubstr("shape"));
  EXPECT_THAT(message(fields(R"("F32")", "[4.5]", "[0,18]")), HasSubstr("shape"));
  EXPECT_THAT(message(fields(R"("F32")", "[0]", "[0,0]")), HasSubstr("shape"));
  EXPECT_THAT(message(fields(R"("F32")", "[1,1,1,1,1,1,1,1,1]", "[0,4]")), HasSubstr("dimensions"));
  EXPECT_THAT(message(fields(R"("F32")", "[4294967296,4294967296]", "[0,0]")), HasSubstr("2^62"));
  EXPECT_THAT(message(fields(R"("F32")", "[4]", "[0,17]")), HasSubstr("16 bytes"));
  EXPECT_THAT(message(fields(R"("F32")", "[4]", "[16,0]")), HasSubstr("a range inside 64"));
  EXPECT_THAT(message(fields(R"("F32")", "[4]", "[60,76]")), HasSubstr("a range inside 64"));
  EXPECT_THAT(message(fields(R"("F32")", "[4]", "[0]")), HasSubstr("data_offsets"));
  EXPECT_THAT(message(fields(R"("F32")", "[4]", "[0,18446744073709551615]")), HasSubstr("inside"));
  EXPECT_THAT(message(fields(R"("F32")", "[4]", "[0,16]") + "," + R"("u":)" +
                      fields(R"("F32")", "[4]", "[12,28]")),
              HasSubstr("some of tensor"));
  EXPECT_THROW(Read(File("[]", 0)), Error);
  EXPECT_THROW(Read(File("{\"a\":", 0)), Error);
  EXPECT_THROW(Read(File(std::string(100000, '['), 0)), Error);
  std::vector<std::byte> huge = File("{}", 0);
  huge[7] = std::byte{0x7f};
  EXPECT_THROW(Read(huge), Error);
}

// Files that were not fetched, or not as files.
TEST(SafetensorsTest, SaysWhatAnotherFileIs) {
  const auto message = [](const std::string& text) {
    std::vector<std::byte> bytes;
    for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
    try {
      Read(std::move(bytes));
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return std::string("accepted");
  };
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  EXPECT_THAT(message(pointer), HasSubstr("unsupported: m.safetensors: header"));
  EXPECT_THAT(message(pointer), HasSubstr("Git LFS pointer"));
  EXPECT_THAT(message(pointer), HasSubstr("git lfs pull"));
  EXPECT_THAT(message("<!doctype html><html>"), HasSubstr("HTML page"));
  EXPECT_THAT(message("  <html><body>"), HasSubstr("HTML page"));
  EXPECT_THAT(message("Access to this model is restricted"), HasSubstr("'Access to this model"));
  EXPECT_THAT(message("GGUF" + std::string(40, '\3')), HasSubstr("a GGUF file"));
  EXPECT_THAT(message(""), HasSubstr("an empty file"));
}

}  // namespace
}  // namespace hearth
