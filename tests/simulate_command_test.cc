// hearth simulate from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class SimulateCommandTest : public testing::Test {
 protected:
  SimulateCommandTest()
      : folder_(testing::TempDir() + "simulate_command." + std::to_string(getpid()) + "/") {
    std::filesystem::create_directory(folder_);
    // Of the embedded model's sizes, so that its traces and profiles fit.
    std::ofstream(folder_ + "small.json")
        << R"({"hidden_size": 256, "intermediate_size": 1024, "num_layers": 5, "num_heads": 8,
               "vocab_size": 512, "activation": "relu"})";
  }
  ~SimulateCommandTest() override { std::filesystem::remove_all(folder_); }

  ProgramResult Simulate(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"simulate", "--device", "oneplus-12", "--model",
                                          folder_ + "small.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }

  const std::string folder_;
};

TEST_F(SimulateCommandTest, JsonFitsItsSchema) {
  const ProgramResult result =
      Simulate({"--memory", "10%,50%,100%", "--pipeline", "cluster,matrix,blocking,llmflash,mmap",
                "--tokens", "8", "--warmup", "4", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_THAT(SchemaComplaints(Schema("simulate"), document), IsEmpty());
  ASSERT_EQ(document["points"].size(), 15);
  EXPECT_EQ(document["points"][2]["miss_rate"]["mean"], 0);
  EXPECT_GT(document["points"][0]["bytes_read_per_token"], 0);
  EXPECT_EQ(document["points"][14]["pipeline"], "mmap");
}

TEST_F(SimulateCommandTest, PrintsATableAndAPicture) {
  const ProgramResult result = Simulate(
      {"--memory", "10%,100%", "--tokens", "4", "--warmup", "0", "--plot", folder_ + "p.svg"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tok/s"));
  EXPECT_THAT(result.out, HasSubstr("UFS 4.0"));
  const std::string svg = ReadWholeFile(folder_ + "p.svg");
  EXPECT_THAT(svg, HasSubstr("tokens per second"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST_F(SimulateCommandTest, PrintsADeviceThatItTakesBack) {
  const ProgramResult device = RunHearth({"simulate", "--device", "oneplus-12", "--print-device"});
  ASSERT_EQ(device.exit_code, 0) << device.err;
  EXPECT_THAT(SchemaComplaints(Schema("device"), nlohmann::json::parse(device.out)), IsEmpty());
  std::ofstream(folder_ + "phone.json") << device.out;
  const std::vector<std::string> run = {"--memory", "30%", "--tokens", "6", "--json"};
  std::vector<std::string> from_file = {"simulate", "--device", folder_ + "phone.json", "--model",
                                        folder_ + "small.json"};
  from_file.insert(from_file.end(), run.begin(), run.end());
  EXPECT_EQ(RunHearth(from_file).out, Simulate(run).out);
}

TEST_F(SimulateCommandTest, TakesARecordedTraceAndAProfile) {
  std::ofstream(folder_ + "text") << "Once upon a time there was a little dog who liked to run.";
  const std::string model = SourcePath("models/hearth-stories-5m.gguf");
  ASSERT_EQ(RunHearth({"profile", model, "--text", folder_ + "text", "-o", folder_ + "p", "--trace",
                       folder_ + "t"})
                .exit_code,
            0);
  for (const auto& [flag, file] : {std::pair{"--trace", "t"}, {"--profile", "p"}}) {
    const ProgramResult result = Simulate(
        {flag, folder_ + file, "--memory", "30%", "--tokens", "8", "--warmup", "2", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto document = nlohmann::json::parse(result.out);
    EXPECT_EQ(document["accesses"], std::string(flag) == "--trace" ? "recorded" : "profile");
    EXPECT_GT(document["points"][0]["miss_rate"]["mean"], 0);
  }
  ExpectRefused(RunHearth({"simulate", "--device", "oneplus-12", "--model", "bamboo-7b", "--trace",
                           folder_ + "t"}),
                2, "--trace");
}

TEST_F(SimulateCommandTest, RefusesInOneSentence) {
  ExpectRefused(RunHearth({"simulate", "--device", "oneplus-12"}), 2, "--model");
  ExpectRefused(RunHearth({"simulate", "--device", "iphone", "--model", "bamboo-7b"}), 1, "iphone");
  ExpectRefused(RunHearth({"simulate", "--device", "oneplus-12", "--model", "bamboo-8b"}), 1,
                "bamboo-8b");
  std::ofstream(folder_ + "bad.json") << R"({"name": "x", "cores": []})";
  ExpectRefused(RunHearth({"simulate", "--device", folder_ + "bad.json", "--model", "bamboo-7b"}),
                2, "bad.json");
  ExpectRefused(Simulate({"--memory", "1M"}), 1, "must be in memory");
  const std::string refused = Simulate({"--memory", "1M"}).err;
  const size_t least = refused.find("neurons: ") + 9;
  EXPECT_EQ(Simulate({"--memory", refused.substr(least, refused.find(' ', least) - least),
                      "--tokens", "2", "--warmup", "0"})
                .exit_code,
            0);
  ExpectRefused(Simulate({"--memory", "101%"}), 2, "--memory");
  ExpectRefused(Simulate({"--pipeline", "cluster,magic"}), 2, "magic");
  ExpectRefused(Simulate({"--cache-policy", "fifo"}), 2, "fifo");
  ExpectRefused(Simulate({"--cache-policy", "lru", "--pipeline", "mmap"}), 2, "no effect");
  for (const char* flag : {"--active", "--skew", "--topic-share", "--gate-fires"}) {
    ExpectRefused(Simulate({flag, "0.3", "--pipeline", "mmap"}), 2,
                  std::string(flag) + " has no effect with --pipeline mmap");
  }
  ExpectRefused(Simulate({"--active", "2"}), 2, "--active");
  ExpectRefused(Simulate({"--trace", "t", "--active", "0.1"}), 2, "no effect with --trace");
  ExpectRefused(Simulate({"--plot", "/nowhere/p.svg"}), 1, "/nowhere/p.svg");
  ExpectRefused(Simulate({"--print-device"}), 2, "--print-device");
}

}  // namespace
}  // namespace hearth
