// No command writes over a file that it reads, or writes one file twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "program.h"
#include "test_refusals.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

class CommandFilesTest : public testing::Test {
 protected:
  CommandFilesTest()
      : folder_(testing::TempDir() + "command_files." + std::to_string(getpid()) + "/") {
    fs::create_directory(folder_);
    fs::copy_file(SourcePath("tests/goldens/llama.gguf"), Path("m.gguf"));
    fs::create_hard_link(Path("m.gguf"), Path("link"));
    Write("text", "Once upon a time there was a text.");
    Write("s.json", "{}");
    Write("d.json", "{}");
  }
  ~CommandFilesTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + name; }
  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
  }

  // The command refuses, naming both options, and leaves all files as they were.
  void ExpectKept(const std::vector<std::string>& arguments, const std::string& words) const {
    const std::string model = ReadWholeFile(Path("m.gguf"));
    const auto files = std::distance(fs::recursive_directory_iterator(folder_), {});
    ExpectRefused(RunHearth(arguments), 2, words);
    EXPECT_EQ(ReadWholeFile(Path("m.gguf")), model) << words;
    EXPECT_EQ(ReadWholeFile(Path("text")), "Once upon a time there was a text.") << words;
    EXPECT_EQ(ReadWholeFile(Path("s.json")), "{}") << words;
    EXPECT_EQ(std::distance(fs::recursive_directory_iterator(folder_), {}), files) << words;
  }

  const std::string folder_;
};

TEST_F(CommandFilesTest, InputsAreNeverReplaced) {
  const std::string model = Path("m.gguf");
  const std::string text = Path("text");
  for (const char* output : {"--plot", "--trace", "-o"}) {
    const std::string name = std::string(output) == "-o" ? "--output" : output;
    ExpectKept({"profile", model, "--text", text, output, model}, name + ": '" + model);
    ExpectKept({"profile", model, "--text", text, output, Path("link")}, "as MODEL");
    ExpectKept({"profile", model, "--text", text, output, text}, "as --text");
  }
  ExpectKept({"profile", model, "--text", text, "--restart", "-o", text}, "as --text");
  ExpectKept({"plan", model, "-o", model}, "as MODEL");
  ExpectKept({"plan", model, "--hw", Path("s.json"), "-o", folder_ + "./s.json"}, "as --hw");
  ExpectKept({"synth", "--shape", Path("s.json"), "-o", Path("s.json")}, "as --shape");
  ExpectKept({"pack", model, "--text", text, "-o", text}, "as --text");
  ExpectKept({"pack", model, "--profile", text, "-o", text}, "as --profile");
  ExpectKept({"bench", "--trace", text, "--plot", text}, "as --trace");
  ExpectKept({"doctor", "--quick", "--file", model, "-o", model}, "as --file");
  ExpectKept(
      {"simulate", "--device", Path("d.json"), "--model", Path("s.json"), "--plot", Path("d.json")},
      "as --device");
  ExpectKept(
      {"simulate", "--device", "oneplus-12", "--model", Path("s.json"), "--plot", Path("s.json")},
      "as --model");
}

TEST_F(CommandFilesTest, NeitherAreTheOtherFilesOfAModel) {
  fs::create_directory(Path("source"));
  Write("source/config.json", "{}");
  Write("source/model-1.safetensors", "");
  for (const char* name : {"source/config.json", "source/model-1.safetensors"}) {
    ExpectKept({"pack", Path("source"), "-o", Path(name)}, "as MODEL");
  }
  // Parts of a split set, which is opened through any of them.
  Write("x-00001-of-00002.gguf", "");
  Write("x-00002-of-00002.gguf", "");
  ExpectKept({"profile", Path("x-00001-of-00002.gguf"), "--text", Path("text"), "--plot",
              Path("x-00002-of-00002.gguf")},
             "as MODEL");
}

TEST_F(CommandFilesTest, OutputsAreDifferentFiles) {
  const std::string model = Path("m.gguf");
  const std::string same = Path("same");
  const std::string again =
      folder_ + "../" + fs::path(folder_).parent_path().filename().string() + "/same";
  const std::vector<std::string> profile = {"profile", model, "--text", Path("text")};
  for (const auto& [a, b] : {std::pair{"-o", "--plot"}, {"--trace", "--plot"}, {"-o", "--trace"}}) {
    std::vector<std::string> arguments = profile;
    arguments.insert(arguments.end(), {a, same, b, again});
    ExpectKept(arguments, "would both write");
  }
  ExpectKept({"doctor", "--quick", "-o", same, "--plot", same}, "--output and --plot");
}

}  // namespace
}  // namespace hearth
