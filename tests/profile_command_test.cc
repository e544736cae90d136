// hearth profile from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "json_schema.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ProfileCommandTest : public testing::Test {
 protected:
  ProfileCommandTest()
      : folder_(testing::TempDir() + "profile_command." + std::to_string(getpid()) + "/") {
    fs::create_directory(folder_);
    const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
    std::ofstream(folder_ + "text", std::ios::binary) << text.substr(0, 4000);
  }
  ~ProfileCommandTest() override { fs::remove_all(folder_); }

  ProgramResult Profile(std::vector<std::string> more, std::string model = "") {
    if (model.empty()) model = SourcePath("models/hearth-stories-5m.gguf");
    std::vector<std::string> arguments = {"profile", model, "--text", folder_ + "text"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }
  static nlohmann::json Document(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
  std::vector<std::string> FilesLeft() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path());
    return names;
  }

  const std::string folder_;
};

TEST_F(ProfileCommandTest, TheDocumentIsWhatItsSchemaSays) {
  const nlohmann::json schema = Schema("profile");
  for (const char* model : {"models/hearth-stories-5m.gguf", "tests/goldens/mixtral.gguf",
                            "tests/goldens/llama.gguf"}) {
    const nlohmann::json document =
        Document(Profile({"--json", "--tokens", "100", "--ctx", "64"}, SourcePath(model)));
    EXPECT_THAT(SchemaComplaints(schema, document), IsEmpty()) << model;
    EXPECT_EQ(document["tokens"], 102) << "two windows, each after BOS";
    EXPECT_EQ(document["context"], 64);
    EXPECT_TRUE(document["files"]["profile"].is_null());
  }
  const nlohmann::json document =
      Document(Profile({"--json", "--trace", folder_ + "t", "--trace-tokens", "9", "-o",
                        folder_ + "p", "--plot", folder_ + "s.svg"}));
  EXPECT_THAT(SchemaComplaints(schema, document), IsEmpty());
  EXPECT_EQ(document["activation"], "drelu");
  EXPECT_TRUE(document["goes_sparse"]);
  EXPECT_EQ(document["layers"].size(), 5u);
  EXPECT_LT(document["all"]["active"], 0.15);
  EXPECT_GT(document["all"]["active"], 0.03);
  EXPECT_EQ(document["files"]["trace_tokens"], 9);
  EXPECT_EQ(document["files"]["trace_bytes"], fs::file_size(folder_ + "t"));
  EXPECT_EQ(document["files"]["profile"], folder_ + "p");
  EXPECT_THAT(ReadWholeFile(folder_ + "s.svg"), HasSubstr("Hearth Stories 5M"));
  EXPECT_EQ(FilesLeft().size(), 4u) << "text, trace, profile, plot and nothing else";
}

TEST_F(ProfileCommandTest, TheTableNamesEveryLayer) {
  const ProgramResult result = Profile({"--tokens", "50"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* part : {"gate fires", "never active", "\n    4 ", "\n  all "}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("SiLU")));
  const ProgramResult silu = Profile({"--tokens", "50"}, SourcePath("tests/goldens/mixtral.gguf"));
  EXPECT_THAT(silu.out, HasSubstr("SiLU is never exactly zero"));
  EXPECT_THAT(silu.out, HasSubstr("unused experts"));
}

TEST_F(ProfileCommandTest, ACompleteProfileIsNotRunAgain) {
  const std::string profile = folder_ + "p";
  const ProgramResult first = Profile({"-o", profile});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  const std::string bytes = ReadWholeFile(profile);
  const ProgramResult second = Profile({"-o", profile, "--plot", folder_ + "p.svg"});
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_THAT(second.err, HasSubstr("complete, nothing is run again"));
  EXPECT_EQ(second.out.substr(0, second.out.find("\nprofile")),
            first.out.substr(0, first.out.find("\nprofile")));
  const ProgramResult restarted = Profile({"-o", profile, "--restart", "--threads", "1"});
  EXPECT_EQ(restarted.err, "");
  EXPECT_EQ(ReadWholeFile(profile), bytes) << "for every number of threads";
}

// Starts the program, interrupts it once `file` is there, and returns its exit code.
int InterruptedOnceWritten(const std::vector<std::string>& arguments, const std::string& file) {
  const pid_t pid = fork();
  if (pid == 0) {
    std::vector<char*> argv = {const_cast<char*>(HEARTH_PROGRAM)};
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    execv(HEARTH_PROGRAM, argv.data());
    _exit(127);
  }
  int status = 0;
  while (!fs::exists(file) && waitpid(pid, &status, WNOHANG) == 0) usleep(1000);
  kill(pid, SIGINT);
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST_F(ProfileCommandTest, AnInterruptedRunContinuesAsIfItHadNotBeen) {
  // A second of work for the scalar kernels, saved after every batch of 64 tokens.
  const std::string model = SourcePath("models/hearth-stories-5m.gguf"), profile = folder_ + "p";
  const std::vector<std::string> common = {"--isa",    "scalar", "--ctx",        "64",
                                           "--tokens", "400",    "--save-every", "0"};
  std::vector<std::string> run = {"profile", model, "--text", folder_ + "text", "-o", profile};
  run.insert(run.end(), common.begin(), common.end());
  EXPECT_EQ(InterruptedOnceWritten(run, profile), 1);
  const std::string interrupted = ReadWholeFile(profile);
  const ProgramResult continued = RunHearth(run);
  EXPECT_EQ(continued.exit_code, 0) << continued.err;
  EXPECT_THAT(continued.err, HasSubstr("continuing after "));
  run[5] = folder_ + "at_once";
  EXPECT_EQ(RunHearth(run).exit_code, 0);
  EXPECT_EQ(ReadWholeFile(profile), ReadWholeFile(folder_ + "at_once"));
  EXPECT_NE(ReadWholeFile(profile), interrupted);
}

TEST_F(ProfileCommandTest, OtherFilesAreNotReplaced) {
  const std::string profile = folder_ + "p";
  ASSERT_EQ(Profile({"-o", profile, "--tokens", "60"}).exit_code, 0);
  const std::string bytes = ReadWholeFile(profile);
  ExpectRefused(Profile({"-o", profile, "--tokens", "61"}), 1, "another text; --restart");
  ExpectRefused(Profile({"-o", profile, "--tokens", "60", "--ctx", "32"}), 1, "windows of 512");
  ExpectRefused(Profile({"-o", profile, "--tokens", "60", "--kv", "f32"}), 1, "KV cache");
  ExpectRefused(Profile({"-o", profile}, SourcePath("tests/goldens/llama.gguf")), 1,
                "another model ('Hearth Stories 5M')");
  ExpectRefused(Profile({"-o", profile, "--tokens", "60", "--trace", folder_ + "t"}), 1,
                "a trace needs all tokens");
  EXPECT_EQ(ReadWholeFile(profile), bytes);
  std::ofstream(folder_ + "note") << std::string(500, 'n');
  ExpectRefused(Profile({"-o", folder_ + "note"}), 1, "no profile of Hearth");
  EXPECT_EQ(Profile({"-o", profile, "--tokens", "61", "--restart"}).exit_code, 0);
}

TEST_F(ProfileCommandTest, WhatCannotWorkIsRefused) {
  std::ofstream(folder_ + "empty").close();
  const std::string model = SourcePath("models/hearth-stories-5m.gguf");
  ExpectRefused(RunHearth({"profile", model, "--text", folder_ + "empty"}), 1, "the text is empty");
  ExpectRefused(RunHearth({"profile", model, "--text", "/nowhere"}), 1, "/nowhere");
  ExpectRefused(RunHearth({"profile", model}), 2, "--text");
  ExpectRefused(Profile({}, "/nowhere"), 1, "/nowhere");
  ExpectRefused(Profile({"-o", "/nowhere/p"}), 1, "/nowhere/p");
  ExpectRefused(Profile({"--plot", folder_}), 1, "directory");
  ExpectRefused(Profile({"--trace", "/nowhere/t"}), 1, "/nowhere/t");
  ExpectRefused(Profile({"--trace-tokens", "5"}), 2, "there is no --trace");
  ExpectRefused(Profile({"--restart"}), 2, "there is no -o");
  ExpectRefused(Profile({"--save-every", "5"}), 2, "there is no -o");
  ExpectRefused(Profile({"--tokens", "0"}), 2, "--tokens");
  ExpectRefused(Profile({"-o", ""}), 2, "--output");
  ExpectRefused(Profile({"--ctx", "1"}), 1, "room for a token after BOS");
  ExpectRefused(Profile({"--ctx", "513"}), 1, "at most 512");
  EXPECT_EQ(FilesLeft().size(), 2u) << "text and the empty file";
}

// What it needs itself is in the plan of a model whose experts are read.
TEST_F(ProfileCommandTest, TheSmallestMemoryNamedWorksForAStreamedMixture) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory is larger than the model";
#endif
  std::ofstream(folder_ + "shape.json")
      << R"({"hidden_size": 256, "intermediate_size": 512, "num_layers": 8, "num_heads": 4,
             "vocab_size": 400, "num_experts": 64, "num_experts_per_token": 4})";
  const std::string model = folder_ + "moe.gguf";
  ASSERT_EQ(RunHearth({"synth", "--shape", folder_ + "shape.json", "-o", model}).exit_code, 0);
  const std::vector<std::string> options = {"--tokens", "40", "--ctx", "64"};
  const auto within = [&](const std::string& memory) {
    std::vector<std::string> all = options;
    all.insert(all.end(), {"--memory", memory});
    return Profile(all, model);
  };
  const ProgramResult refused = within("20M");
  EXPECT_EQ(refused.exit_code, 1);
  const std::string words = "the smallest that can is ";
  const size_t at = refused.err.find(words);
  ASSERT_NE(at, std::string::npos) << refused.err;
  const uint64_t least = std::stoull(refused.err.substr(at + words.size()));
  ASSERT_LT(least << 20, fs::file_size(model)) << "it is streamed";
  const ProgramResult done = within(std::to_string(least) + "M");
  EXPECT_EQ(done.exit_code, 0) << done.err;
}

TEST_F(ProfileCommandTest, PackedModelsFireAsTheirSources) {
  const std::string packed = folder_ + "packed.gguf";
  ASSERT_EQ(RunHearth({"pack", SourcePath("models/hearth-stories-5m.gguf"), "-o", packed, "--mode",
                       "gated", "--quant", "q8_0"})
                .exit_code,
            0);
  const std::vector<std::string> options = {"--json", "--tokens", "300", "--trace", folder_ + "t"};
  const nlohmann::json of_source = Document(Profile(options));
  const nlohmann::json of_packed = Document(Profile(options, packed));
  for (const char* share : {"active", "gate", "hot_output"}) {
    const double expected = of_source["all"][share].get<double>();
    EXPECT_NEAR(of_packed["all"][share].get<double>(), expected, 0.03 * expected) << share;
  }
  EXPECT_EQ(of_packed["files"]["trace_tokens"], of_source["files"]["trace_tokens"]);
  EXPECT_NEAR(of_packed["files"]["trace_bytes"].get<double>() /
                  of_source["files"]["trace_bytes"].get<double>(),
              1.0, 0.03);
}

TEST_F(ProfileCommandTest, HelpListsIt) {
  EXPECT_THAT(RunHearth({"help"}).out, HasSubstr("profile"));
  EXPECT_THAT(RunHearth({"help", "profile"}).out, HasSubstr("--trace FILE"));
}

TEST_F(ProfileCommandTest, WalksTheTopicsOfASynthesizedModel) {
  std::ofstream(folder_ + "shape.json")
      << R"({"name": "tiny", "arch": "llama", "hidden_size": 128, "intermediate_size": 256,
             "num_layers": 2, "num_heads": 2, "num_kv_heads": 2, "head_dim": 64,
             "vocab_size": 512, "context_length": 64, "rope_base": 10000, "activation": "relu",
             "num_experts": 0, "num_experts_per_token": 0})";
  const std::string model = folder_ + "m.gguf";
  ASSERT_EQ(RunHearth({"synth", "--shape", folder_ + "shape.json", "-o", model}).exit_code, 0);
  const auto document = Document(RunHearth({"profile", model, "--walk", "20", "--json"}));
  EXPECT_EQ(document["tokens"], 21);  // and BOS
}

TEST_F(ProfileCommandTest, NeedsATextOrAWalk) {
  const std::string stories = SourcePath("models/hearth-stories-5m.gguf");
  ExpectRefused(RunHearth({"profile", stories}), 2, "one of --text and --walk");
  ExpectRefused(Profile({"--walk", "8"}), 2, "--text or --walk, not both");
  ExpectRefused(RunHearth({"profile", stories, "--walk", "8", "--tokens", "4"}), 2, "--tokens");
  ExpectRefused(RunHearth({"profile", stories, "--walk", "8"}), 1, "no topics to walk");
}

}  // namespace
}  // namespace hearth
