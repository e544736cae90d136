#include "prepare/shapes/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The message of the Error that `call` throws; empty where it throws none.
std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Weights of an FFN's three matrices in all layers.
int64_t FfnWeights(const ModelShape& shape) {
  return 3 * shape.hidden_size * shape.intermediate_size * shape.num_layers *
         std::max<int64_t>(shape.num_experts, 1);
}

TEST(ShapesTest, EveryNamedShapeIsValid) {
  const std::vector<std::string> names = ShapeNames();
  EXPECT_EQ(names.size(), 17u);
  for (const std::string& name : names) {
    const ModelShape shape = FindShape(name);
    EXPECT_EQ(shape.name, name);
    EXPECT_NO_THROW(ValidateShape(shape, name)) << name;
    EXPECT_EQ(shape.qkv_bias, shape.architecture == "qwen2") << name;
    EXPECT_EQ(shape.qk_norm, shape.architecture == "qwen3moe") << name;
    EXPECT_EQ(shape.head_dim, 128) << name;
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(ShapesTest, SizesAgreeWithTheArithmeticOfFormats) {
  // "mistral-7b/bamboo-7b in Q4_0: attention 755 MB, head 74 MB, FFN 3,171 MB".
  for (const char* name : {"mistral-7b", "bamboo-7b", "turbosparse-mistral-7b"}) {
    const ModelShape shape = FindShape(name);
    EXPECT_EQ(FfnWeights(shape) / 32 * 18 / 1000000, 3170) << name;
    const int64_t q = shape.num_heads * shape.head_dim;
    const int64_t kv = shape.num_kv_heads * shape.head_dim;
    const int64_t attention = shape.num_layers * shape.hidden_size * (2 * q + 2 * kv);
    EXPECT_EQ(attention / 32 * 18 / 1000000, 754) << name;
  }
}

TEST(ShapesTest, WhatSetsAShapeApart) {
  EXPECT_EQ(FindShape("llama3-8b").rope_base, 500000);
  EXPECT_EQ(FindShape("llama3-8b").vocab_size, 128256);
  EXPECT_TRUE(FindShape("qwen2-1.5b").tied_embeddings);
  EXPECT_FALSE(FindShape("qwen2-7b").tied_embeddings);
  EXPECT_EQ(FindShape("mixtral-8x7b").num_experts, 8);
  EXPECT_EQ(FindShape("qwen3-30b-a3b").num_experts_per_token, 8);
  EXPECT_EQ(FindShape("bamboo-7b").activation, FfnActivation::kDRelu);
  EXPECT_EQ(FindShape("prosparse-13b").activation, FfnActivation::kFatRelu);
  EXPECT_EQ(FindShape("prosparse-13b").threshold, 0.01);
  EXPECT_EQ(FindShape("relu-llama-7b").activation, FfnActivation::kRelu);
  EXPECT_EQ(FindShape("turbosparse-mixtral-47b").activation, FfnActivation::kDRelu);
  EXPECT_EQ(FindShape("smallthinker-4b").sliding_window, 0);
  EXPECT_EQ(FindShape("smallthinker-21b").sliding_window, 4096);
}

TEST(ShapesTest, NamesThatCannotBeMadeYetSaySo) {
  for (const char* name : {"opt-6.7b", "opt-175b", "falcon-40b"}) {
    try {
      FindShape(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("cannot be made yet")));
    }
  }
  EXPECT_THAT(MessageOf([] { FindShape("gpt-5"); }),
              AllOf(HasSubstr("mistral-7b"), HasSubstr("'gpt-5'")));
}

TEST(ShapesTest, ResolveTakesNamesAndFiles) {
  EXPECT_EQ(ResolveShape("mistral-7b").hidden_size, 4096);
  EXPECT_THAT(MessageOf([] { ResolveShape("/nowhere/shape.json"); }),
              HasSubstr("/nowhere/shape.json"));
  EXPECT_THAT(MessageOf([] { ResolveShape("nothing.json"); }), HasSubstr("cannot open"));
}

TEST(ShapesTest, ValidateChecksShapesMadeByHand) {
  ModelShape shape = FindShape("qwen2-7b");
  shape.num_experts = 8;
  shape.num_experts_per_token = 2;
  EXPECT_THAT(MessageOf([&] { ValidateShape(shape, "x"); }), HasSubstr("x: num_experts"));
  shape = FindShape("mistral-7b");
  shape.threshold = 0.5;
  EXPECT_THAT(MessageOf([&] { ValidateShape(shape, "x"); }), HasSubstr("fatrelu"));
  EXPECT_THAT(MessageOf([&] { ValidateShape({}, "x"); }), HasSubstr("hidden_size"));
}

}  // namespace
}  // namespace hearth
