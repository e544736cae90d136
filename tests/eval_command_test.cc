// hearth eval: perplexities, and questions with known answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class EvalCommandTest : public testing::Test {
 protected:
  ~EvalCommandTest() override { std::filesystem::remove(file_); }

  // The arguments of an evaluation of a file with this content.
  std::vector<std::string> Of(const char* option, const std::string& content,
                              const std::vector<std::string>& more = {}) const {
    std::ofstream(file_, std::ios::binary) << content;
    std::vector<std::string> arguments = {
        "eval", SourcePath("models/hearth-stories-5m.gguf"), option, file_, "--ctx", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static nlohmann::json Parse(const ProgramResult& result, const char* schema) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const nlohmann::json document = nlohmann::json::parse(result.out);
    EXPECT_THAT(SchemaComplaints(Schema(schema), document), testing::IsEmpty());
    return document;
  }

  std::string file_ = testing::TempDir() + "eval_command." + std::to_string(getpid());
};

TEST_F(EvalCommandTest, PrintsPerplexity) {
  const std::string text = "Once upon a time there was a text, long enough to score.";
  const nlohmann::json document = Parse(RunHearth(Of("--text", text, {"--json"})), "eval");
  EXPECT_NEAR(std::exp(document["nll_per_token"].get<double>()),
              document["perplexity"].get<double>(), 1e-6);
  EXPECT_LT(document["quality"]["active"], 0.9);
}

constexpr const char* kChoices =
    "{\"prompt\": \"Once upon a\", \"choices\": [\"the of\", \"time, there was\"], \"answer\": 1}\n"
    "{\"prompt\": \"Once upon a\", \"choices\": [\"the of\", \"time, there was\"], \"answer\": 0}\n"
    "{\"prompt\": \"Once upon a\", \"choices\": [\"time, there was\", \"the of\"], \"answer\": "
    "0}\n";

TEST_F(EvalCommandTest, CountsQuestionsThatAreAnsweredRight) {
  nlohmann::json document = Parse(RunHearth(Of("--task", kChoices, {"--json"})), "eval_task");
  EXPECT_EQ(document["kind"], "choices");
  EXPECT_EQ(document["questions"], 3);
  EXPECT_EQ(document["right"], 2);
  EXPECT_NEAR(document["accuracy"]["standard_error"].get<double>(), std::sqrt(2.0 / 9 / 3), 1e-12);
  document = Parse(RunHearth(Of("--task", kChoices, {"--json", "--questions", "1"})), "eval_task");
  EXPECT_EQ(document["right"], 1);
  EXPECT_EQ(document["accuracy"]["share"], 1);
  EXPECT_THAT(RunHearth(Of("--task", kChoices)).out, HasSubstr("(2 of 3 questions, "));

  const char* const kWord = "{\"prompt\": \"Once upon a\", \"answer\": \"time\"}";
  document = Parse(RunHearth(Of("--task", kWord, {"--json"})), "eval_task");
  EXPECT_EQ(document["right"], 1);
  EXPECT_LT(document["perplexity_per_word"], 2);
}

TEST_F(EvalCommandTest, RefusesWhatItCannotMeasure) {
  ExpectRefused(RunHearth(Of("--task", "no JSON")), 1, ":1");
  ExpectRefused(RunHearth(Of("--task", "")), 1, "no questions");
  ExpectRefused(RunHearth(Of("--task", kChoices, {"--text", file_})), 2, "--text");
  ExpectRefused(RunHearth(Of("--text", "some text", {"--questions", "1"})), 2, "--task");
  ExpectRefused(RunHearth({"eval", SourcePath("models/hearth-stories-5m.gguf")}), 2, "--task");
}

}  // namespace
}  // namespace hearth
