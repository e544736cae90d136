// The getters: what they convert, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "format/gguf.h"

namespace hearth {
namespace {

using testing::HasSubstr;

GgufMetadata Sample() {
  GgufMetadata m("m.gguf");
  m.SetUint32("u32", 7);
  m.SetUint64("big", UINT64_MAX);
  m.SetInt32("i32", 9);
  m.SetInt32("minus", -1);
  m.SetFloat32("f32", 0.5f);
  m.SetBool("bool", true);
  m.SetString("text", "hi");
  m.SetStrings("texts", {"a", "b"});
  m.SetInt32s("i32s", {1, -2});
  m.SetFloat32s("f32s", {1.5f});
  m.Set("u64s", {GgufType::kArray, GgufArray{GgufType::kUint64, std::vector<uint64_t>{3}}});
  m.Set("bigs",
        {GgufType::kArray, GgufArray{GgufType::kUint64, std::vector<uint64_t>{UINT64_MAX}}});
  m.Set("f64s", {GgufType::kArray, GgufArray{GgufType::kFloat64, std::vector<double>{0.25}}});
  m.Set("huge", {GgufType::kArray, GgufArray{GgufType::kFloat64, std::vector<double>{1e300}}});
  m.Set("bools", {GgufType::kArray, GgufArray{GgufType::kBool, std::vector<uint8_t>{1}}});
  return m;
}

void ExpectRefusal(const std::function<void()>& get, ErrorCode code, const std::string& key,
                   const std::string& says) {
  try {
    get();
    FAIL() << key << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.what(), HasSubstr("m.gguf: key '" + key + "'"));
    EXPECT_THAT(error.what(), HasSubstr(says));
  }
}

TEST(GgufMetadata, ConvertsIntegersThatFit) {
  const GgufMetadata m = Sample();
  EXPECT_EQ(m.GetUint("u32"), 7u);
  EXPECT_EQ(m.GetUint("i32"), 9u);
  EXPECT_EQ(m.FindInt("u32"), 7);
  EXPECT_EQ(m.FindInt("minus"), -1);
  EXPECT_EQ(m.GetUint("big"), UINT64_MAX);
  EXPECT_EQ(m.GetFloat("u32"), 7.0);
  EXPECT_EQ(m.GetFloat("minus"), -1.0);
  EXPECT_EQ(m.GetFloat("f32"), 0.5);
  EXPECT_EQ(m.FindBool("bool"), true);
  EXPECT_EQ(m.GetString("text"), "hi");
}

TEST(GgufMetadata, ConvertsArrays) {
  const GgufMetadata m = Sample();
  EXPECT_EQ(*m.FindStrings("texts"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(m.FindInts("i32s"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(m.FindInts("u64s"), std::vector<int64_t>{3});
  EXPECT_EQ(m.FindFloats("f32s"), std::vector<float>{1.5f});
  EXPECT_EQ(m.FindFloats("f64s"), std::vector<float>{0.25f});
  EXPECT_EQ(m.FindFloats("i32s"), (std::vector<float>{1, -2}));
}

TEST(GgufMetadata, FindsNothingForAMissingKey) {
  const GgufMetadata m = Sample();
  EXPECT_FALSE(m.Has("none"));
  EXPECT_EQ(m.FindOrNull("none"), nullptr);
  EXPECT_EQ(m.FindUint("none"), std::nullopt);
  EXPECT_EQ(m.FindInt("none"), std::nullopt);
  EXPECT_EQ(m.FindFloat("none"), std::nullopt);
  EXPECT_EQ(m.FindBool("none"), std::nullopt);
  EXPECT_EQ(m.FindString("none"), nullptr);
  EXPECT_EQ(m.FindStrings("none"), nullptr);
  EXPECT_EQ(m.FindInts("none"), std::nullopt);
  EXPECT_EQ(m.FindFloats("none"), std::nullopt);
  ExpectRefusal([&] { m.GetUint("none"); }, ErrorCode::kNotFound, "none", "missing");
  ExpectRefusal([&] { m.GetFloat("none"); }, ErrorCode::kNotFound, "none", "missing");
  ExpectRefusal([&] { m.GetString("none"); }, ErrorCode::kNotFound, "none", "missing");
}

TEST(GgufMetadata, RefusesOtherTypesAndValuesThatDoNotFit) {
  const GgufMetadata m = Sample();
  const auto refused = [](const std::function<void()>& get, const char* key, const char* says) {
    ExpectRefusal(get, ErrorCode::kCorrupt, key, says);
  };
  refused([&] { m.FindUint("minus"); }, "minus", "0 or more, found -1");
  refused([&] { m.FindUint("f32"); }, "f32", "an integer, found float32");
  refused([&] { m.FindUint("bool"); }, "bool", "an integer, found bool");
  refused([&] { m.FindInt("big"); }, "big", "below 2^63");
  refused([&] { m.FindInt("text"); }, "text", "an integer, found string");
  refused([&] { m.FindFloat("bool"); }, "bool", "a number, found bool");
  refused([&] { m.FindFloat("text"); }, "text", "a number, found string");
  refused([&] { m.FindBool("u32"); }, "u32", "a bool, found uint32");
  refused([&] { m.FindString("texts"); }, "texts", "a string, found array of string");
  refused([&] { m.FindStrings("text"); }, "text", "an array of string, found string");
  refused([&] { m.FindStrings("i32s"); }, "i32s", "an array of string, found array of int32");
  refused([&] { m.FindInts("u32"); }, "u32", "an array of integers, found uint32");
  refused([&] { m.FindInts("f32s"); }, "f32s", "an array of integers, found array of float32");
  refused([&] { m.FindInts("texts"); }, "texts", "an array of integers, found array of string");
  refused([&] { m.FindInts("bools"); }, "bools", "an array of integers, found array of bool");
  refused([&] { m.FindInts("bigs"); }, "bigs", "18446744073709551615");
  refused([&] { m.FindFloats("texts"); }, "texts", "an array of numbers");
  refused([&] { m.FindFloats("huge"); }, "huge", "1e+300");
}

TEST(GgufMetadata, ReplacesValues) {
  GgufMetadata m = Sample();
  m.SetString("u32", "now text");
  EXPECT_EQ(m.GetString("u32"), "now text");
}

TEST(GgufMetadata, NamesEveryType) {
  for (uint32_t i = 0; i <= 12; ++i) {
    EXPECT_STRNE(GgufTypeName(static_cast<GgufType>(i)), "unknown");
  }
}

}  // namespace
}  // namespace hearth
