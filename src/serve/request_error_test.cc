// What the model refuses is said with the name of the field that it is about.
#include "serve/request_error.h"

#include <gtest/gtest.h>

#include "base/test_data.h"

namespace hearth::serve {
namespace {

class RequestErrorTest : public ::testing::Test {
 protected:
  template <typename Fn>
  RequestError ErrorOf(Fn&& fn) {
    try {
      fn();
    } catch (const api::Error& error) {
      return FromModel(error);
    }
    ADD_FAILURE() << "nothing was refused";
    return {Status::kOk, ""};
  }
  RequestError Generate(const api::GenerateRequest& request) {
    return ErrorOf([&] { model_.Generate(request); });
  }

  api::Model model_ = api::Model::Load(SourcePath("tests/goldens/llama.gguf"), {.threads = 1});
};

TEST_F(RequestErrorTest, TheFieldIsNamed) {
  EXPECT_EQ(Generate({.prompt = {1 << 30}}).param(), "prompt");
  EXPECT_EQ(Generate({.prompt = {1}, .sampling = {.top_p = 7}}).param(), "top_p");
  const std::vector<api::TokenId> too_long(static_cast<size_t>(model_.info().context) + 1, 1);
  EXPECT_EQ(Generate({.prompt = too_long}).param(), "prompt");
  EXPECT_EQ(Generate({.prompt = too_long}).code(), "context_length_exceeded");
  api::GenerateRequest biased = {.prompt = {1}};
  biased.sampling.logit_bias[1 << 30] = 1;
  EXPECT_EQ(Generate(biased).param(), "logit_bias");
  EXPECT_EQ(Generate(biased).code(), "invalid_value");
  for (const char* schema : {R"({"type": "thing"})", R"({"$ref": "#"})"}) {
    const auto make = [&] { model_.MakeGrammar(schema); };
    EXPECT_EQ(ErrorOf(make).param(), "response_format") << schema;
  }
  const RequestNames responses = {.prompt = "input",
                                  .messages = "input",
                                  .json_schema = "text.format",
                                  .has_same_messages = false};
  try {
    model_.MakeGrammar(R"({"type": "thing"})");
    ADD_FAILURE() << "nothing was refused";
  } catch (const api::Error& error) {
    EXPECT_EQ(FromModel(error, responses).param(), "text.format");
    EXPECT_EQ(std::string(FromModel(error, responses).what()).find("text.format: "), 0u);
    EXPECT_EQ(std::string(FromModel(error).what()).find("response_format: "), 0u);
  }
  const api::Error of_messages(api::ErrorCode::kContextFull,
                               "messages: This model's maximum context length is 8 tokens, but the "
                               "messages have 9 tokens",
                               "messages");
  EXPECT_STREQ(FromModel(of_messages, responses).what(),
               "This model's maximum context length is 8 tokens, but the input has 9 tokens");
  EXPECT_EQ(FromModel(of_messages, responses).param(), "input");
  const api::Error of_one(api::ErrorCode::kInvalidArgument, "messages[1].content: no",
                          "messages[1].content");
  EXPECT_STREQ(FromModel(of_one).what(), "messages[1].content: no");
  EXPECT_STREQ(FromModel(of_one, responses).what(), "input: no");
  EXPECT_EQ(FromModel({api::ErrorCode::kUnsupported, "tools: function 'f': no", "tools"}).param(),
            "tools");
  EXPECT_EQ(FromModel({api::ErrorCode::kBusy, "too many"}).param(), "");
}

}  // namespace
}  // namespace hearth::serve
