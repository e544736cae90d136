// --activation of every command that opens a model, and what is said of models that may need it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "format/gguf.h"
#include "prepare/pack/test_pack_models.h"
#include "program.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string StoriesPath() { return SourcePath("models/hearth-stories-5m.gguf"); }

class ActivationCommandTest : public ::testing::Test {
 protected:
  ActivationCommandTest() {
    WriteStoriesWithoutActivation(Silent());
    const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
    std::ofstream(Text()) << text.substr(0, 1500);
  }

  std::string Silent() const { return folder_.Path("silent.gguf"); }
  std::string Text() const { return folder_.Path("text"); }
  // The command's words after the name of the model.
  ProgramResult Hearth(const char* command, const std::string& model,
                       const std::vector<std::string>& more) const {
    std::vector<std::string> words = {command, model};
    words.insert(words.end(), more.begin(), more.end());
    return RunHearth(words);
  }
  ProgramResult Eval(const std::string& model, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--text", Text(), "--json"});
    return Hearth("eval", model, more);
  }

  TestFolder folder_{"activation_command"};
};

TEST_F(ActivationCommandTest, GivesASilentFileTheModelsOwnPerplexity) {
  const ProgramResult own = Eval(StoriesPath());
  const ProgramResult given = Eval(Silent(), {"--activation", "drelu"});
  ASSERT_EQ(given.exit_code, 0) << given.err;
  EXPECT_EQ(given.out, own.out);
  EXPECT_EQ(given.err, own.err);
  const auto wrong = nlohmann::json::parse(Eval(Silent()).out);
  EXPECT_GT(wrong["perplexity"].get<double>(), 100);
}

// The model's description says dReLU.
TEST_F(ActivationCommandTest, WarnsInOneLineWhereANameSpeaksOfRelu) {
  const std::string named = folder_.Path("ProSparse-stories.gguf");
  std::filesystem::rename(Silent(), named);
  const ProgramResult run = Hearth("run", named, {"-p", "Once", "-n", "1", "--json"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("hearth: warning: "), HasSubstr("'ProSparse-stories.gguf'"),
                             HasSubstr("runs as silu"), HasSubstr("--activation fatrelu")));
  for (const char* activation : {"fatrelu", "silu"}) {
    EXPECT_THAT(
        Hearth("run", named, {"-p", "Once", "-n", "1", "--json", "--activation", activation}).err,
        IsEmpty());
  }
  EXPECT_THAT(Hearth("inspect", named, {}).err, HasSubstr("--activation fatrelu"));
  EXPECT_THAT(Hearth("inspect", StoriesPath(), {}).err, IsEmpty());
}

TEST_F(ActivationCommandTest, PackAndProfileRefuseWhereAnotherOneFits) {
  const auto names_it =
      AllOf(HasSubstr("foreseen far better with drelu than with silu"),
            HasSubstr("add --activation drelu"), HasSubstr("or --activation silu to go on"));
  const std::vector<std::string> pack_it = {"--text", Text(), "-o", folder_.Path("p"), "--force"};
  const ProgramResult refused = Hearth("pack", Silent(), pack_it);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, names_it);
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("p")));
  const ProgramResult profile = Hearth("profile", Silent(), {"--text", Text(), "--tokens", "60"});
  EXPECT_EQ(profile.exit_code, 1);
  EXPECT_THAT(profile.err, names_it);
  // What a user says is doubted, and done; what the file says is not doubted.
  std::vector<std::string> insist = pack_it;
  insist.insert(insist.end(), {"--activation", "silu"});
  const ProgramResult packed = Hearth("pack", Silent(), insist);
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("pack the model again with --activation drelu"));
  EXPECT_THAT(Hearth("profile", Silent(), {"--text", Text(), "--activation", "relu"}).err,
              HasSubstr("with drelu than with relu"));
  for (const ProgramResult& right :
       {Hearth("profile", Silent(), {"--text", Text(), "--activation", "drelu"}),
        Hearth("profile", StoriesPath(), {"--text", Text()})}) {
    EXPECT_EQ(right.exit_code, 0);
    EXPECT_THAT(right.err, Not(HasSubstr("foreseen")));
  }
}

TEST_F(ActivationCommandTest, APackedFileSaysWhatItsMakerSaid) {
  const ProgramResult packed =
      Hearth("pack", Silent(), {"-o", folder_.Path("p"), "--activation", "drelu"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  const GgufFile file = GgufFile::Open(folder_.Path("p"));
  EXPECT_EQ(file.metadata().GetString("hearth.ffn_activation"), "drelu");
  const ProgramResult own = Hearth("pack", StoriesPath(), {"-o", folder_.Path("o")});
  ASSERT_EQ(own.exit_code, 0) << own.err;
  EXPECT_EQ(Eval(folder_.Path("p"), {"--mode", "gated"}).out,
            Eval(folder_.Path("o"), {"--mode", "gated"}).out);
}

TEST_F(ActivationCommandTest, AProfileIsThatOfItsActivation) {
  const std::string profile = folder_.Path("profile");
  const ProgramResult made =
      Hearth("profile", Silent(), {"--text", Text(), "-o", profile, "--activation", "drelu"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto pack = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--profile", profile, "-o", folder_.Path("p")});
    return Hearth("pack", Silent(), more);
  };
  const ProgramResult other = pack({});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(
      other.err,
      HasSubstr("activation of the model that it was made with: expected silu, found drelu"));
  EXPECT_EQ(pack({"--activation", "drelu"}).exit_code, 0);
}

TEST_F(ActivationCommandTest, EveryCommandTakesIt) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> commands = {
      {"run", {"-p", "Once", "-n", "1"}},
      {"eval", {"--text", Text()}},
      {"bench", {"--prefill", "4", "--decode", "1", "--context", "1", "--reps", "1"}},
      {"profile", {"--text", Text()}},
      {"pack", {"-o", folder_.Path("p")}},
      {"serve", {"--port", "0"}},
      {"inspect", {}},
      {"plan",
       {"--memory", "1G", "--device-memory", "1G", "--device-bandwidth", "100", "--link-bandwidth",
        "10", "--memory-bandwidth", "10"}}};
  for (auto [command, more] : commands) {
    more.insert(more.end(), {"--activation", "relu"});
    const ProgramResult other = Hearth(command, StoriesPath(), more);
    EXPECT_EQ(other.exit_code, 1) << command;
    EXPECT_THAT(other.err, HasSubstr("expected drelu, which the file says itself, found relu"))
        << command;
    more.back() = "mish";
    const ProgramResult later = Hearth(command, StoriesPath(), more);
    EXPECT_EQ(later.exit_code, 2) << command;
    EXPECT_THAT(
        later.err,
        HasSubstr("expected silu, gelu, gelu_erf, relu, fatrelu[:T] or drelu, found 'mish'"))
        << command;
    more.back() = "drelu";
    // The one would stay, the other needs a profile.
    if (std::string(command) == "serve" || std::string(command) == "plan") continue;
    const ProgramResult same = Hearth(command, StoriesPath(), more);
    EXPECT_EQ(same.exit_code, 0) << command << ": " << same.err;
  }
  EXPECT_EQ(RunHearth({"plan", "opt-6.7b", "--device-memory", "1G", "--device-bandwidth", "100",
                       "--link-bandwidth", "10", "--activation", "relu"})
                .exit_code,
            2);
}

}  // namespace
}  // namespace hearth
