// `hearth template` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/test_data.h"
#include "program.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class TemplateCommandTest : public ::testing::Test {
 protected:
  static std::string MakeFile(const std::string& name, const std::string& content) {
    const std::string path = ::testing::TempDir() + "hearth_template_" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  const std::string source_ = MakeFile("a.jinja", "{{ bos_token }}<{{ name }}>\n\n");
  const std::string context_ = MakeFile("a.json", R"({"name": "Ada", "bos_token": "<s>"})");
};

TEST_F(TemplateCommandTest, PrintsTheRenderingAndNothingElse) {
  const ProgramResult result =
      RunHearth({"template", "--template", source_, "--context", context_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "<s><Ada>\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(TemplateCommandTest, JsonSaysWhatIsTrusted) {
  const ProgramResult result =
      RunHearth({"template", "--template", source_, "--context", context_, "--json"});
  EXPECT_EQ(nlohmann::json::parse(result.out),
            nlohmann::json::parse(R"({"pieces": [{"text": "<s><", "trusted": true},
                {"text": "Ada", "trusted": false}, {"text": ">\n", "trusted": true}]})"));
}

TEST_F(TemplateCommandTest, TakesTheTemplateOfAModel) {
  const std::string messages =
      MakeFile("b.json", R"({"messages": [{"role": "user", "content": "Hi"}],
                             "add_generation_prompt": true})");
  const std::string model = SourcePath("models/hearth-stories-5m.gguf");
  const ProgramResult result = RunHearth({"template", "--template", model, "--context", messages});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
}

TEST_F(TemplateCommandTest, FailsInOneSentence) {
  const std::string bad = MakeFile("bad.jinja", "\n{{ 1 + }}");
  const std::string raising = MakeFile("raise.jinja", "{{ raise_exception('no\nsystem') }}");
  const std::string no_json = MakeFile("bad.json", "{\"a\": ");
  const std::string no_template = SourcePath("tests/goldens/llama.gguf");
  struct Case {
    std::string source;
    std::string context;
    int exit_code;
    std::string words;
  };
  const Case cases[] = {{bad, context_, 1, "bad.jinja: line 2: expected an expression"},
                        {raising, context_, 1, "raise.jinja: line 1: no\\x0asystem"},
                        {source_, no_json, 1, "bad.json: is not valid JSON: see line 1"},
                        {source_, source_ + ".nope", 1, "nope"},
                        {source_ + ".nope", context_, 1, "nope"},
                        {no_template, context_, 1, "carries no chat template"},
                        {"", context_, 2, "--template"}};
  for (const Case& c : cases) {
    const ProgramResult result =
        RunHearth({"template", "--template", c.source, "--context", c.context});
    EXPECT_EQ(result.exit_code, c.exit_code) << c.words;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("hearth: "));
    EXPECT_THAT(result.err, HasSubstr(c.words));
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
  }
}

}  // namespace
}  // namespace hearth
