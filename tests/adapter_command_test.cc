// --lora on the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "program.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string Golden(const std::string& name) { return SourcePath("tests/goldens/" + name); }

ProgramResult RunLlama(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      "run", Golden("llama.gguf"), "--raw", "-p", "Once", "--json", "--temp", "0", "-n", "12"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunHearth(arguments);
}

std::vector<int> TokensOf(const std::vector<std::string>& more) {
  const ProgramResult result = RunLlama(more);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out)["token_ids"];
}

TEST(AdapterCommandTest, WeightsSayHowMuchIsAdded) {
  const std::string a = Golden("adapters/llama-a"), b = Golden("adapters/llama-b");
  const std::vector<int> base = TokensOf({});
  EXPECT_EQ(TokensOf({"--lora", a + "=0"}), base);
  const std::vector<int> with_a = TokensOf({"--lora", a});
  EXPECT_NE(with_a, base);
  EXPECT_EQ(TokensOf({"--lora", a + "=1"}), with_a);
  EXPECT_EQ(TokensOf({"--lora", a, "--lora", b + "=0"}), with_a);
  EXPECT_NE(TokensOf({"--lora", a, "--lora", b + "=2.5"}), with_a);
  EXPECT_EQ(TokensOf({"--lora", a + "/adapter_model.safetensors"}), with_a);
}

TEST(AdapterCommandTest, TheLedgerNamesThem) {
  const ProgramResult result = RunLlama({"--lora", Golden("adapters/llama-a")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(json::parse(result.out)["memory"]["ledger"]["adapters"], 4096);
}

TEST(AdapterCommandTest, AnAdapterIsNoModel) {
  const ProgramResult result = RunHearth({"run", Golden("adapters/llama-a"), "-p", "Once"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("load it together with its base model"));
}

TEST(AdapterCommandTest, WrongUsageIsTold) {
  for (const char* wrong : {"nowhere=x", "nowhere=1e9", "nowhere=", "=1", "", "nowhere=nan"}) {
    EXPECT_EQ(RunLlama({"--lora", wrong}).exit_code, 2) << wrong;
  }
  const ProgramResult missing = RunLlama({"--lora", Golden("nowhere.gguf")});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("nowhere.gguf"));
  const ProgramResult other = RunLlama({"--lora", Golden("adapters/gpt2-a")});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("is no matrix of a 'llama' model"));
}

}  // namespace
}  // namespace hearth
