// Texts that are pipes are read to their end, wherever a command takes the name of a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/test_data.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

constexpr char kText[] = "Once upon a time there was a text.";

class TextStreamsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mkfifo(pipe_.c_str(), 0600), 0); }
  void TearDown() override {
    std::remove(pipe_.c_str());
    std::remove(file_.c_str());
  }

  // What the command prints where the text comes from a pipe.
  ProgramResult WithPipe(std::vector<std::string> arguments, const std::string& text) {
    arguments.push_back(pipe_);
    std::thread writer([&] {
      // A program that refuses what it reads closes the pipe early.
      sigset_t broken_pipe;
      sigemptyset(&broken_pipe);
      sigaddset(&broken_pipe, SIGPIPE);
      pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
      std::ofstream(pipe_, std::ios::binary) << text;
    });
    ProgramResult result = RunHearth(arguments);
    writer.join();
    return result;
  }

  ProgramResult WithFile(std::vector<std::string> arguments, const std::string& text) {
    std::ofstream(file_, std::ios::binary) << text;
    arguments.push_back(file_);
    return RunHearth(arguments);
  }

  const std::string model_ = SourcePath("tests/goldens/llama.gguf");
  const std::string pipe_ = testing::TempDir() + "text_pipe." + std::to_string(getpid());
  const std::string file_ = testing::TempDir() + "text_file." + std::to_string(getpid());
};

TEST_F(TextStreamsTest, ArePrompts) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"tokenize", model_, "-f"},
        {"run", model_, "--raw", "-n", "3", "--temp", "0", "-f"}}) {
    const ProgramResult piped = WithPipe(command, kText);
    EXPECT_EQ(piped.exit_code, 0) << piped.err;
    EXPECT_EQ(piped.out, WithFile(command, kText).out) << command[0];
    EXPECT_FALSE(piped.out.empty());
  }
}

TEST_F(TextStreamsTest, AreTemplatesAndContexts) {
  const std::string context = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  std::ofstream(file_) << context;
  const ProgramResult as_template =
      WithPipe({"template", "--context", file_, "--template"}, "{{ messages[0].content }}!");
  EXPECT_EQ(as_template.out, "Hi!") << as_template.err;
}

TEST_F(TextStreamsTest, AreDevicesShapesAndTextsToMeasure) {
  const std::string device =
      RunHearth({"simulate", "--device", "oneplus-12", "--print-device"}).out;
  const std::string shape =
      R"({"hidden_size": 64, "intermediate_size": 96, "num_layers": 1, "num_heads": 2,
          "num_kv_heads": 1, "head_dim": 32, "vocab_size": 300, "arch": "llama"})";
  const std::string out = testing::TempDir() + "text_model." + std::to_string(getpid());
  const std::vector<std::pair<std::vector<std::string>, std::string>> commands = {
      {{"simulate", "--model", "bamboo-7b", "--memory", "4G", "--tokens", "2", "--warmup", "1",
        "--device"},
       device},
      {{"eval", model_, "--text"}, kText}};
  for (const auto& [command, text] : commands) {
    const ProgramResult piped = WithPipe(command, text);
    EXPECT_EQ(piped.exit_code, 0) << piped.err;
    EXPECT_EQ(piped.out, WithFile(command, text).out) << command[0];
  }
  const ProgramResult made = WithPipe({"synth", "-o", out, "--shape"}, shape);
  EXPECT_EQ(made.exit_code, 0) << made.err;
  std::remove(out.c_str());
  ExpectRefused(WithPipe({"synth", "-o", out, "--shape"}, std::string(2 << 20, ' ')), 1,
                "size of a shape file: expected at most");
}

TEST_F(TextStreamsTest, FoldersAreNone) {
  ExpectRefused(RunHearth({"tokenize", model_, "-f", testing::TempDir()}), 1, "a regular file");
}

}  // namespace
}  // namespace hearth
