#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "base/error.h"
#include "prepare/shapes/shapes.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

// What every shape must say.
constexpr char kSizes[] =
    R"("hidden_size": 64, "intermediate_size": 96, "num_layers": 2, "num_heads": 4,
       "vocab_size": 300)";

std::string Shape(const std::string& more) {
  return "{" + std::string(kSizes) + (more.empty() ? "" : ", ") + more + "}";
}

TEST(ShapeJsonTest, DefaultsAreLlama) {
  const ModelShape shape = ParseShape(Shape(""), "shapes/tiny.json");
  EXPECT_EQ(shape.name, "tiny");
  EXPECT_EQ(shape.architecture, "llama");
  EXPECT_EQ(shape.num_kv_heads, 4);
  EXPECT_EQ(shape.head_dim, 16);
  EXPECT_EQ(shape.context_length, 4096);
  EXPECT_EQ(shape.rope_base, 10000);
  EXPECT_EQ(shape.activation, FfnActivation::kSilu);
  EXPECT_EQ(shape.num_experts, 0);
  EXPECT_FALSE(shape.tied_embeddings);
  EXPECT_FALSE(shape.qkv_bias);
  EXPECT_FALSE(shape.qk_norm);
}

TEST(ShapeJsonTest, EveryKeyIsRead) {
  const ModelShape shape = ParseShape(Shape(R"("name": "mine", "arch": "mixtral",
      "num_kv_heads": 2, "head_dim": 32, "context_length": 512, "rope_base": 5e5,
      "activation": "fatrelu", "threshold": 0.05, "num_experts": 4, "num_experts_per_token": 2,
      "tied_embeddings": true, "sliding_window": 128, "norm_epsilon": 1e-6)"),
                                      "tiny.json");
  EXPECT_EQ(shape.name, "mine");
  EXPECT_EQ(shape.architecture, "llama");
  EXPECT_EQ(shape.num_kv_heads, 2);
  EXPECT_EQ(shape.head_dim, 32);
  EXPECT_EQ(shape.context_length, 512);
  EXPECT_EQ(shape.rope_base, 500000);
  EXPECT_EQ(shape.activation, FfnActivation::kFatRelu);
  EXPECT_EQ(shape.threshold, 0.05);
  EXPECT_EQ(shape.num_experts, 4);
  EXPECT_EQ(shape.num_experts_per_token, 2);
  EXPECT_TRUE(shape.tied_embeddings);
  EXPECT_EQ(shape.sliding_window, 128);
  EXPECT_EQ(shape.norm_epsilon, 1e-6);
}

TEST(ShapeJsonTest, ArchitectureDecidesOnBiasesAndNorms) {
  EXPECT_TRUE(ParseShape(Shape(R"("arch": "qwen2")"), "s").qkv_bias);
  EXPECT_TRUE(ParseShape(Shape(R"("arch": "qwen3")"), "s").qk_norm);
  EXPECT_FALSE(ParseShape(Shape(R"("arch": "qwen3")"), "s").qkv_bias);
  const std::string moe = R"("arch": "qwen3moe", "num_experts": 4, "num_experts_per_token": 2)";
  EXPECT_TRUE(ParseShape(Shape(moe), "s").qk_norm);
  EXPECT_EQ(ParseShape(Shape(R"("arch": "mistral")"), "s").architecture, "llama");
}

struct BadShape {
  const char* what;
  std::string json;
  std::string message;  // part of it
};

void PrintTo(const BadShape& bad, std::ostream* out) { *out << bad.what; }

class BadShapeTest : public ::testing::TestWithParam<BadShape> {};

TEST_P(BadShapeTest, IsRefusedWithASentence) {
  try {
    ParseShape(GetParam().json, "bad.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("bad.json"));
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Text, BadShapeTest,
    ::testing::Values(
        BadShape{"empty", "", "not valid JSON"}, BadShape{"garbage", "hidden: 3", "not valid JSON"},
        BadShape{"cut off", R"({"hidden_size": 64)", "not valid JSON"},
        BadShape{"trailing text", Shape("") + "x", "not valid JSON"},
        BadShape{"invalid UTF-8", "{\"name\": \"\xff\"}", "not valid JSON"},
        BadShape{"huge number", Shape(R"("rope_base": 1e999)"), "not valid JSON"},
        BadShape{"array", "[1]", "an object"}, BadShape{"null", "null", "an object"},
        BadShape{"unknown key", Shape(R"("hiden_size": 3)"), "unknown key 'hiden_size'"},
        BadShape{"unprintable key", Shape("\"\\u0007\": 3"), "unknown key '\\x07'"},
        BadShape{"repeated key", Shape(R"("hidden_size": 128)"), "'hidden_size' is there twice"},
        BadShape{"missing size", R"({"hidden_size": 64})", "intermediate_size is missing"},
        BadShape{"text for a number", Shape(R"("num_kv_heads": "4")"), "num_kv_heads"},
        BadShape{"fraction", Shape(R"("num_kv_heads": 2.0)"), "an integer"},
        BadShape{"beyond 63 bits", Shape(R"("context_length": 18446744073709551615)"), "2^63"},
        BadShape{"number for a bool", Shape(R"("tied_embeddings": 1)"), "true or false"},
        BadShape{"bool for a number", Shape(R"("rope_base": true)"), "a number"},
        BadShape{"number for text", Shape(R"("arch": 3)"), "a string"}));

INSTANTIATE_TEST_SUITE_P(
    Sizes, BadShapeTest,
    ::testing::Values(
        BadShape{"unknown arch", Shape(R"("arch": "gpt2")"), "'gpt2'"},
        BadShape{"unknown activation", Shape(R"("activation": "mish")"),
                 "silu, gelu, gelu_erf, relu"},
        BadShape{"heads do not divide",
                 R"({"hidden_size": 64, "intermediate_size": 96, "num_layers": 2,
                     "num_heads": 5, "vocab_size": 300})",
                 "a divisor of hidden_size 64"},
        BadShape{"zero heads",
                 R"({"hidden_size": 64, "intermediate_size": 96, "num_layers": 2,
                     "num_heads": 0, "vocab_size": 300})",
                 "num_heads"},
        BadShape{"KV heads do not divide", Shape(R"("num_kv_heads": 3)"), "a divisor of num_heads"},
        BadShape{"more KV heads", Shape(R"("num_kv_heads": 8)"), "num_kv_heads"},
        BadShape{"negative", Shape(R"("sliding_window": -1)"), "sliding_window"},
        BadShape{"odd head_dim", Shape(R"("head_dim": 15)"), "an even number"},
        BadShape{"zero context", Shape(R"("context_length": 0)"), "context_length"},
        BadShape{"absurd context", Shape(R"("context_length": 4294967296)"), "context_length"},
        BadShape{"small vocabulary",
                 R"({"hidden_size": 64, "intermediate_size": 96, "num_layers": 2,
                     "num_heads": 4, "vocab_size": 259})",
                 "vocab_size: expected 260"},
        BadShape{"zero base", Shape(R"("rope_base": 0)"), "rope_base"},
        BadShape{"negative epsilon", Shape(R"("norm_epsilon": -1e-5)"), "norm_epsilon"},
        BadShape{"threshold of silu", Shape(R"("threshold": 0.1)"), "fatrelu"},
        BadShape{"fatrelu without one", Shape(R"("activation": "fatrelu")"), "threshold"},
        BadShape{"no experts per token", Shape(R"("num_experts": 4)"), "num_experts_per_token"},
        BadShape{"more than there are", Shape(R"("num_experts": 4, "num_experts_per_token": 5)"),
                 "num_experts_per_token"},
        BadShape{"per token alone", Shape(R"("num_experts_per_token": 2)"),
                 "num_experts_per_token"},
        BadShape{"dense qwen3moe", Shape(R"("arch": "qwen3moe")"), "at least 1"},
        BadShape{"qwen2 with experts",
                 Shape(R"("arch": "qwen2", "num_experts": 4, "num_experts_per_token": 2)"),
                 "0 for arch qwen2"}));

}  // namespace
}  // namespace hearth
