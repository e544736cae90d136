// hearth convert, as users call it.
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "import/test_model_folder.h"
#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

class ConvertCommandTest : public ModelFolderTest {
 protected:
  ConvertCommandTest() { Publish(Golden("qwen2"), "qwen2"); }

  std::vector<std::string> Command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = {"convert", folder_.Path(""), "-o", out_.Path("m.gguf")};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  TestFolder out_{"hearth_convert_command"};
};

TEST_F(ConvertCommandTest, MakesAFileThatRuns) {
  const ProgramResult result = RunHearth(Command());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "") << "silent in a pipe";
  EXPECT_THAT(result.out, testing::HasSubstr("(qwen2)"));
  const ProgramResult run =
      RunHearth({"run", out_.Path("m.gguf"), "--raw", "-p", "the", "-n", "3", "--temp", "0"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const ProgramResult original = RunHearth({"run", SourcePath("tests/goldens/qwen2.gguf"), "--raw",
                                            "-p", "the", "-n", "3", "--temp", "0"});
  EXPECT_EQ(run.out, original.out);
}

TEST_F(ConvertCommandTest, JsonIsAsItsSchemaSays) {
  const ProgramResult result = RunHearth(Command({"--type", "bf16", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("convert"), json), testing::ElementsAre());
  EXPECT_EQ(json["type"], "BF16");
  EXPECT_EQ(json["architecture"], "qwen2");
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(out_.Path("m.gguf")));
}

TEST_F(ConvertCommandTest, AdaptersBecomePartOfTheWeights) {
  Publish(Golden("llama"), "llama");
  const std::string adapter = SourcePath("tests/goldens/adapters/llama-a");
  const auto tokens = [](const std::vector<std::string>& model) {
    std::vector<std::string> command = {"run", "--raw",  "-p", "Once",  "-n",
                                        "16",  "--temp", "0",  "--json"};
    command.insert(command.end(), model.begin(), model.end());
    const ProgramResult result = RunHearth(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["token_ids"];
  };
  const ProgramResult result = RunHearth(Command({"--lora", adapter + "=0.5"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr("--lora changed "));
  EXPECT_THAT(result.out, testing::HasSubstr("rounding them costs 0 (relative error)"));
  const std::string base = SourcePath("tests/goldens/llama.gguf");
  EXPECT_EQ(tokens({out_.Path("m.gguf")}), tokens({base, "--lora", adapter + "=0.5"}));
  EXPECT_NE(tokens({out_.Path("m.gguf")}), tokens({base}));
  const ProgramResult half =
      RunHearth(Command({"--lora", adapter, "--type", "f16", "--json", "--force"}));
  ASSERT_EQ(half.exit_code, 0) << half.err;
  const nlohmann::json json = nlohmann::json::parse(half.out);
  EXPECT_THAT(SchemaComplaints(Schema("convert"), json), testing::ElementsAre());
  EXPECT_GT(json["merged_tensors"], 0);
  EXPECT_GT(json["merge_error"], 0);
  ExpectRefused(RunHearth(Command({"--lora", out_.Path("m.gguf"), "--force"})), 2,
                "is read as --lora");
}

TEST_F(ConvertCommandTest, AFileThatIsThereStays) {
  std::ofstream(out_.Path("m.gguf")) << "precious";
  ExpectRefused(RunHearth(Command()), 1, "--force replaces it");
  EXPECT_EQ(out_.Bytes("m.gguf"), "precious");
  EXPECT_EQ(RunHearth(Command({"--force"})).exit_code, 0);
  EXPECT_EQ(out_.Bytes("m.gguf").substr(0, 4), "GGUF");
}

TEST_F(ConvertCommandTest, WhatCannotBeIsSaid) {
  ExpectRefused(RunHearth(Command({"--type", "q4_0"})), 2, "expected keep, f32, f16 or bf16");
  ExpectRefused(RunHearth({"convert", out_.Path(""), "-o", out_.Path("m.gguf")}), 1,
                "there is no config.json");
  ExpectRefused(RunHearth({"convert", folder_.Path(""), "-o", folder_.Path("config.json")}), 2,
                "is read as FOLDER");
  // Tensors that are not as the config says.
  Publish(Golden("qwen2"), "qwen2", {{"intermediate_size", 41}});
  ExpectRefused(RunHearth(Command()), 1, "shape of blk.0.ffn_gate.weight");
  std::filesystem::remove(folder_.Path("model.safetensors"));
  ExpectRefused(RunHearth(Command()), 1, "there is neither model.safetensors nor");
  EXPECT_THAT(out_.Files(), testing::ElementsAre());
}

// A limit on the size of files stands for a full disk.
TEST_F(ConvertCommandTest, AFileThatCannotBeWrittenLeavesNothing) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {.rlim_cur = 20000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramResult result = RunHearth(Command());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ExpectRefused(result, 1, "m.gguf");
  EXPECT_THAT(out_.Files(), testing::ElementsAre());
}

}  // namespace
}  // namespace hearth
