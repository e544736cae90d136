// The C interface: what a model is and counts, vectors, special tokens, seeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "api/test_c_api.h"
#include "hearth/hearth.hpp"

namespace {

using ::testing::HasSubstr;

class CApiInfoTest : public CApiTest {};

TEST_F(CApiInfoTest, AModelSaysWhatItIs) {
  hearth_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(hearth_get_info(model_, &info, &error_), HEARTH_OK) << error_.message;
  EXPECT_STREQ(info.name, "hearth-stories-5m");
  EXPECT_STREQ(info.architecture, "llama");
  EXPECT_THAT(info.path, HasSubstr("hearth-stories-5m.gguf"));
  EXPECT_STREQ(info.mode, "dense");
  EXPECT_EQ(info.threads, 1);
  EXPECT_EQ(info.context, hearth_context(model_));
  EXPECT_EQ(info.vocab_size, hearth_vocab_size(model_));
  EXPECT_GT(info.memory_limit_bytes, 0u);
  EXPECT_EQ(info.is_streamed, 0);
  EXPECT_EQ(info.can_chat, 1);
  EXPECT_EQ(info.struct_size, sizeof(info));

  // A program that knows the first members only.
  hearth_info older = {};
  older.struct_size = offsetof(hearth_info, architecture);
  ASSERT_EQ(hearth_get_info(model_, &older, &error_), HEARTH_OK);
  EXPECT_STREQ(older.name, info.name);
  EXPECT_EQ(older.architecture, nullptr);

  hearth_info unsized = {};
  EXPECT_EQ(hearth_get_info(model_, &unsized, &error_), HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(hearth_get_info(nullptr, &info, &error_), HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(hearth_get_info(model_, nullptr, &error_), HEARTH_INVALID_ARGUMENT);
}

TEST_F(CApiInfoTest, SpecialTokensAreReadOnlyWhereTheTextIsTrusted) {
  const std::string text = "<|im_end|>";
  std::vector<int32_t> tokens(100);
  size_t trusted = 0, plain = 0;
  ASSERT_EQ(hearth_tokenize_trusted(model_, text.data(), text.size(), 0, tokens.data(),
                                    tokens.size(), &trusted, &error_),
            HEARTH_OK)
      << error_.message;
  const int32_t first = tokens[0];
  ASSERT_EQ(hearth_tokenize(model_, text.data(), text.size(), 0, tokens.data(), tokens.size(),
                            &plain, &error_),
            HEARTH_OK);
  EXPECT_EQ(trusted, 1u);
  EXPECT_GT(plain, 1u);
  char bytes[16] = {};
  size_t length = 0;
  ASSERT_EQ(hearth_token_bytes(model_, first, bytes, sizeof(bytes), &length, &error_), HEARTH_OK);
  EXPECT_EQ(hearth_token_bytes(model_, -1, bytes, sizeof(bytes), &length, &error_),
            HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(length, 0u);
}

TEST_F(CApiInfoTest, VectorsOfTextsHaveLengthOne) {
  hearth_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(hearth_get_info(model_, &info, &error_), HEARTH_OK);
  const auto size = static_cast<size_t>(info.embedding_size);
  std::vector<float> vector(size);
  const std::string text = "A fox ran.";
  size_t count = 0;
  EXPECT_EQ(
      hearth_embed(model_, text.data(), text.size(), vector.data(), size - 1, &count, &error_),
      HEARTH_TOO_SMALL);
  EXPECT_EQ(count, size);
  ASSERT_EQ(hearth_embed(model_, text.data(), text.size(), vector.data(), size, &count, &error_),
            HEARTH_OK)
      << error_.message;
  double sum = 0;
  for (const float x : vector) sum += static_cast<double>(x) * static_cast<double>(x);
  EXPECT_NEAR(sum, 1, 1e-5);
  hearth::api::Model model = hearth::api::Model::Load(kEmbeddedModel, {.threads = 1});
  EXPECT_EQ(model.Embed(model.TokenizeForEmbedding(text)), vector);
}

TEST_F(CApiInfoTest, CountsHaveTheNamesOfStats) {
  std::map<std::string, double> counts;
  hearth_each_count(
      model_,
      [](const char* name, double value, void* user) {
        (*static_cast<std::map<std::string, double>*>(user))[name] = value;
      },
      &counts);
  EXPECT_EQ(counts.at("hit_rate"), 1);
  EXPECT_GT(counts.at("kv_pages"), 0);
  EXPECT_EQ(counts.at("kv_pages_free"), counts.at("kv_pages"));
  EXPECT_EQ(counts.at("sessions_restored_bytes"), 0);
  hearth_each_count(model_, nullptr, nullptr);
  hearth_each_count(
      nullptr, [](const char*, double, void*) { ADD_FAILURE(); }, nullptr);
}

TEST(CApiSeedTest, SeedsDiffer) { EXPECT_NE(hearth_random_seed(), hearth_random_seed()); }

}  // namespace
