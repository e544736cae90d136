// Adapters through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "api/test_c_api.h"

namespace {

using hearth::SourcePath;
using ::testing::HasSubstr;

class AdaptersCApiTest : public ::testing::Test {
 protected:
  AdaptersCApiTest() {
    const std::string a = SourcePath("tests/goldens/adapters/llama-a");
    const std::string b = SourcePath("tests/goldens/adapters/llama-b");
    const hearth_adapter adapters[] = {{a.c_str(), 1}, {b.c_str(), 0}};
    hearth_load_more more = {};
    more.struct_size = sizeof(more);
    more.adapters = adapters;
    more.adapter_count = 2;
    const hearth_options options = OneThread();
    const std::string model = SourcePath("tests/goldens/llama.gguf");
    EXPECT_EQ(hearth_load_with(model.c_str(), &options, &more, &model_, &error_), HEARTH_OK)
        << error_.message;
  }
  ~AdaptersCApiTest() override { hearth_free(model_); }

  // null: the default scales.
  std::string Ask(const std::vector<hearth_adapter_scale>* scales) {
    const std::vector<int32_t> tokens = {5, 6, 7, 8, 9, 10};
    hearth_request request;
    hearth_request_init(&request);
    request.max_tokens = 12;
    request.sampling.temperature = 0;
    hearth_question question = {};
    question.struct_size = sizeof(question);
    question.tokens = tokens.data();
    question.token_count = tokens.size();
    if (scales != nullptr) {
      question.chooses_adapters = 1;
      question.adapters = scales->data();
      question.adapter_count = scales->size();
    }
    hearth_session* session = hearth_session_new(model_);
    hearth_answer* answer = nullptr;
    status_ = hearth_ask(session, &question, &request, &answer, &error_);
    const std::string text = answer != nullptr ? hearth_answer_text(answer) : "";
    hearth_answer_free(answer);
    hearth_session_free(session);
    return text;
  }

  hearth_model* model_ = nullptr;
  hearth_error error_ = {};
  hearth_status status_ = HEARTH_OK;
};

TEST_F(AdaptersCApiTest, QuestionsChooseAmongThem) {
  const std::vector<hearth_adapter_scale> none, first = {{0, 1}}, both = {{1, 1}, {0, 1}};
  const std::string by_default = Ask(nullptr);
  EXPECT_EQ(Ask(&first), by_default);
  EXPECT_NE(Ask(&none), by_default);
  EXPECT_NE(Ask(&both), by_default);
  const std::vector<hearth_adapter_scale> wrong = {{2, 1}};
  EXPECT_EQ(Ask(&wrong), "");
  EXPECT_EQ(status_, HEARTH_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("expected 0 to 1, found 2"));
}

TEST_F(AdaptersCApiTest, DefaultsCanBeChanged) {
  EXPECT_EQ(hearth_adapter_count(model_), 2u);
  EXPECT_THAT(hearth_adapter_path(model_, 1), HasSubstr("llama-b"));
  EXPECT_EQ(hearth_adapter_path(model_, 2), nullptr);
  EXPECT_EQ(hearth_adapter_default_scale(model_, 0), 1.0f);
  EXPECT_EQ(hearth_adapter_default_scale(model_, 2), 0.0f);
  const std::string before = Ask(nullptr);
  const hearth_adapter_scale scales[] = {{1, 0.5f}};
  EXPECT_EQ(hearth_set_adapter_scales(model_, scales, 1, &error_), HEARTH_OK);
  EXPECT_EQ(hearth_adapter_default_scale(model_, 0), 0.0f);
  EXPECT_EQ(hearth_adapter_default_scale(model_, 1), 0.5f);
  EXPECT_NE(Ask(nullptr), before);
  EXPECT_EQ(hearth_set_adapter_scales(model_, nullptr, 1, &error_), HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(hearth_set_adapter_scales(nullptr, scales, 1, &error_), HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(hearth_set_adapter_scales(model_, nullptr, 0, &error_), HEARTH_OK);
}

TEST(AdaptersLoadCApiTest, WhatCannotBeLoadedSaysWhy) {
  hearth_load_more more = {};
  more.struct_size = sizeof(more);
  more.adapter_count = 1;
  hearth_model* model = nullptr;
  hearth_error error;
  const std::string path = SourcePath("tests/goldens/llama.gguf");
  EXPECT_EQ(hearth_load_with(path.c_str(), nullptr, &more, &model, &error),
            HEARTH_INVALID_ARGUMENT);
  const hearth_adapter without = {nullptr, 1};
  more.adapters = &without;
  EXPECT_EQ(hearth_load_with(path.c_str(), nullptr, &more, &model, &error),
            HEARTH_INVALID_ARGUMENT);
  const std::string other = SourcePath("tests/goldens/adapters/gpt2-a");
  const hearth_adapter of_gpt2 = {other.c_str(), 1};
  more.adapters = &of_gpt2;
  EXPECT_EQ(hearth_load_with(path.c_str(), nullptr, &more, &model, &error), HEARTH_UNSUPPORTED);
  EXPECT_THAT(error.message, HasSubstr("is no matrix of a 'llama' model"));
  EXPECT_EQ(model, nullptr);
}

}  // namespace
