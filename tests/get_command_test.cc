// hearth get, list and rm, and models by name, against a hub on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/test_data.h"
#include "hub_server.h"
#include "program.h"
#include "terminal.h"
#include "test_refusals.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Kind = StoreFault::Kind;

constexpr char kRepository[] = "tester/Tiny-Llama-GGUF";

class GetCommandTest : public ::testing::Test {
 protected:
  GetCommandTest()
      : folder_(::testing::TempDir() + "get_command." + std::to_string(getpid())),
        model_(ReadWholeFile(SourcePath("tests/goldens/llama.gguf"))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    setenv("HEARTH_MODELS", Models().c_str(), 1);
    setenv("HOME", folder_.c_str(), 1);
    setenv("HF_ENDPOINT", server_.endpoint().c_str(), 1);
    setenv("no_proxy", "*", 1);
    for (const char* name : {"HF_TOKEN", "HF_HOME", "HF_TOKEN_PATH", "XDG_CACHE_HOME", "http_proxy",
                             "CURL_CA_BUNDLE", "LD_LIBRARY_PATH"}) {
      unsetenv(name);
    }
    server_.Add(kRepository, "tiny-llama-F32.gguf", model_);
    server_.Add(kRepository, "tiny-llama-Q2_K.gguf", "no model, but a file");
  }
  ~GetCommandTest() override {
    unsetenv("LD_LIBRARY_PATH");
    fs::remove_all(folder_);
  }

  std::string Models() const { return folder_ + "/models"; }
  // Until a file that is being fetched has so many bytes.
  void AwaitPart(uintmax_t bytes) const {
    const auto has_come = [&] {
      std::error_code gone;
      for (const auto& entry : fs::recursive_directory_iterator(Models(), gone)) {
        if (entry.path().extension() == ".part" && fs::file_size(entry.path(), gone) == bytes) {
          return true;
        }
      }
      return false;
    };
    for (int i = 0; i < 3000 && !has_come(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(has_come());
  }
  std::string ModelPath() const { return Models() + "/" + kRepository + "/tiny-llama-F32.gguf"; }
  void Get() const {
    const ProgramResult got = RunHearth({"get", kRepository});
    ASSERT_EQ(got.exit_code, 0) << got.err;
  }

  HubServer server_;
  const std::string folder_;
  const std::string model_;
};

TEST_F(GetCommandTest, FromTheHubToAnAnswerAndAwayAgain) {
  const ProgramResult got = RunHearth({"get", kRepository});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(got.err, "");  // no progress where there is no terminal
  EXPECT_EQ(got.out, std::string(kRepository) + ":F32  397 KiB, is here\n" + ModelPath() + "\n");
  EXPECT_THAT(RunHearth({"get", kRepository}).out, HasSubstr("is here already"));

  const ProgramResult listed = RunHearth({"list"});
  EXPECT_THAT(listed.out, HasSubstr("tester/Tiny-Llama-GGUF:F32"));
  EXPECT_THAT(listed.out, HasSubstr("llama         yes"));

  const std::string by_path = RunHearth({"run", ModelPath(), "-p", "a", "--temp", "0"}).out;
  EXPECT_THAT(by_path, Not(IsEmpty()));
  for (const char* name : {kRepository, "tester/tiny-llama-gguf:f32", "tiny-llama", "tiny"}) {
    const ProgramResult run = RunHearth({"run", name, "-p", "a", "--temp", "0"});
    EXPECT_EQ(run.out, by_path) << name << run.err;
  }

  ExpectRefused(RunHearth({"rm", "tiny"}), 2, "--yes removes without a question");
  EXPECT_THAT(RunHearth({"rm", "tiny", "--yes"}).out, StartsWith("removed tester/Tiny-Llama-GGUF"));
  EXPECT_TRUE(fs::is_empty(Models()));
  EXPECT_THAT(RunHearth({"list"}).err, HasSubstr("'hearth get OWNER/REPO' fetches one"));
}

TEST_F(GetCommandTest, EveryCommandTakesNames) {
  Get();
  const std::string text = folder_ + "/text";
  std::ofstream(text) << "Some text of no meaning, long enough to score.";
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", "tiny", "--json"},
      {"tokenize", "tiny", "-p", "abc"},
      {"eval", "tiny", "--text", text, "--ctx", "16"},
      {"bench", "tiny", "--prefill", "8", "--decode", "2", "--reps", "1"},
      {"profile", "tiny", "--text", text, "-o", folder_ + "/p"},
  };
  for (const auto& command : commands) {
    const ProgramResult result = RunHearth(command);
    EXPECT_EQ(result.exit_code, 0) << command[0] << ": " << result.err;
  }
  // These find the model, and then a reason to stop.
  ExpectRefused(RunHearth({"pack", "tiny", "-o", folder_ + "/packed.gguf"}), 1, "hidden size");
  ExpectRefused(RunHearth({"template", "--template", "tiny", "--context", text}), 1, "text");
  ExpectRefused(RunHearth({"serve", "tiny", "--ctx", "100000"}), 1, "at most 128");
  for (const char* command : {"inspect", "tokenize", "eval", "bench", "run", "serve", "plan"}) {
    std::vector<std::string> arguments = {command, "nothing"};
    if (arguments[0] == "eval") arguments.insert(arguments.end(), {"--text", text});
    ExpectRefused(RunHearth(arguments), 1,
                  "there is no file or model 'nothing'; 'hearth get OWNER/REPO' fetches one, "
                  "'hearth list' shows yours");
  }
  ExpectRefused(RunHearth({"run", "tester/other", "-p", "a"}), 1,
                "'hearth get tester/other' fetches it");
}

TEST_F(GetCommandTest, APathThatExistsWins) {
  fs::create_directories(folder_ + "/tester");
  fs::copy_file(SourcePath("tests/goldens/qwen2.gguf"), folder_ + "/" + "tiny");
  Get();
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const ProgramResult inspected = RunHearth({"inspect", "tiny"});
  fs::current_path(before);
  EXPECT_THAT(inspected.out, HasSubstr("qwen2"));
}

TEST_F(GetCommandTest, SaysWhatThereIsToGet) {
  server_.Add("tester/many", "x-Q2_K.gguf", "1");
  server_.Add("tester/many", "x-Q3_K_L.gguf", "22");
  server_.Add("tester/none", "model.safetensors", "1");
  ExpectRefused(RunHearth({"get", "tester/many"}), 1, "Q2_K, Q3_K_L: say which");
  ExpectRefused(RunHearth({"get", "tester/many:Q9"}), 1, "it holds no 'Q9'; there is Q2_K, Q3_K_L");
  ExpectRefused(RunHearth({"get", "tester/none"}), 1, "it holds no GGUF file");
  ExpectRefused(RunHearth({"get", "tester/nobody"}), 1, "no such public repository");
  ExpectRefused(RunHearth({"get", "smollm"}), 2, "expected OWNER/REPO");
  EXPECT_THAT(RunHearth({"get", "tester/many", "--list"}).out,
              HasSubstr("2 B  tester/many:Q3_K_L\n"));
  const json list = json::parse(RunHearth({"get", "tester/many", "--list", "--json"}).out);
  EXPECT_EQ(list["models"].size(), 2u);
  EXPECT_FALSE(fs::exists(Models()));
}

TEST_F(GetCommandTest, ListsForPrograms) {
  Get();
  ASSERT_EQ(RunHearth({"get", std::string(kRepository) + ":Q2_K"}).exit_code, 0);
  const json list = json::parse(RunHearth({"list", "--json"}).out);
  EXPECT_EQ(list["folder"], Models());
  const json& good = list["models"][0];
  EXPECT_EQ(good["name"], "tester/Tiny-Llama-GGUF:F32");
  EXPECT_EQ(good["bytes"], model_.size());
  EXPECT_EQ(good["quant"], "F32");
  EXPECT_EQ(good["architecture"], "llama");
  EXPECT_EQ(good["complete"], true);
  EXPECT_EQ(good["runnable"], true);
  EXPECT_TRUE(good["reason"].is_null());
  EXPECT_EQ(good["files"], json({ModelPath()}));
  const json& bad = list["models"][1];
  EXPECT_EQ(bad["runnable"], false);
  EXPECT_THAT(bad["reason"].get<std::string>(), HasSubstr("GGUF"));
  // Both may be meant by a name, but only one is preferred; nothing is removed by preference.
  EXPECT_EQ(RunHearth({"inspect", "tiny"}).exit_code, 0);
  ExpectRefused(RunHearth({"rm", "tiny", "--yes"}), 1, "say which");
}

TEST_F(GetCommandTest, GatedModelsNeedATokenAndAccess) {
  server_.Gate(kRepository, "hf_right");
  ExpectRefused(RunHearth({"get", kRepository}), 1,
                "it is gated: accept its terms at " + server_.endpoint() + "/" + kRepository);
  setenv("HF_TOKEN", "hf_wrong", 1);
  ExpectRefused(RunHearth({"get", kRepository}), 1, "your token may not read it");
  // As Hugging Face's tools leave it.
  unsetenv("HF_TOKEN");
  fs::create_directories(folder_ + "/.cache/huggingface");
  std::ofstream(folder_ + "/.cache/huggingface/token") << "hf_right\n";
  Get();
  setenv("HF_TOKEN", "a\r\nX-Other: b", 1);
  ExpectRefused(RunHearth({"get", kRepository}), 1, "the token holds blanks or control bytes");
}

TEST_F(GetCommandTest, WithoutAHubThereIsASentence) {
  setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  ExpectRefused(RunHearth({"get", kRepository}), 1, "cannot be read from http://127.0.0.1:1");
  setenv("HF_ENDPOINT", "ftp://127.0.0.1", 1);
  ExpectRefused(RunHearth({"get", kRepository}), 1, "HF_ENDPOINT");
}

TEST_F(GetCommandTest, ProxiesAreUsed) {
  unsetenv("no_proxy");
  setenv("http_proxy", server_.endpoint().c_str(), 1);
  setenv("HF_ENDPOINT", "http://hub.invalid", 1);
  const ProgramResult got = RunHearth({"get", kRepository});
  EXPECT_EQ(got.exit_code, 0) << got.err;
}

TEST_F(GetCommandTest, WithoutLibcurlThereIsASentence) {
  const std::string libraries = folder_ + "/libraries";
  fs::create_directories(libraries);
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    std::ofstream(libraries + "/" + name) << "no library";
  }
  setenv("LD_LIBRARY_PATH", libraries.c_str(), 1);
  ExpectRefused(RunHearth({"get", kRepository}), 1, "needs the package libcurl4");
  EXPECT_EQ(RunHearth({"list"}).exit_code, 0);
}

TEST_F(GetCommandTest, WithoutSpaceWhatCameStays) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramResult full = RunHearth({"get", kRepository});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ExpectRefused(full, 1, "cannot write: File too large");
  EXPECT_THAT(full.err, HasSubstr("'hearth get tester/Tiny-Llama-GGUF:F32' goes on from there"));
  EXPECT_THAT(RunHearth({"list"}).out, HasSubstr("only a part is here"));
  ExpectRefused(RunHearth({"run", "tiny", "-p", "a"}), 1, "only a part of it is here");
  server_.TakeRanges();
  Get();
  EXPECT_THAT(server_.TakeRanges(), testing::ElementsAre("bytes=100000-"));
  EXPECT_TRUE(ReadWholeFile(ModelPath()) == model_);
}

TEST_F(GetCommandTest, AModelLargerThanTheDiskIsRefusedBefore) {
  const std::string api = std::string("/api/models/") + kRepository;
  json answer = {{"sha", std::string(40, 'a')},
                 {"siblings",
                  {{{"rfilename", "x.gguf"},
                    {"lfs", {{"sha256", std::string(64, 'b')}, {"size", int64_t{1} << 43}}}}}}};
  server_.Answer(api, 200, answer.dump());
  ExpectRefused(RunHearth({"get", kRepository}), 1, "free disk space: expected at least 8.00 TiB");
  EXPECT_THAT(server_.TakeRanges(), IsEmpty());
}

TEST_F(GetCommandTest, OneWrongByteIsASentence) {
  server_.Fail({{Kind::kFlip, 1000}});
  ExpectRefused(RunHearth({"get", kRepository}), 1, "what came is not what the hub has");
  EXPECT_FALSE(fs::exists(ModelPath()));
  Get();
}

TEST_F(GetCommandTest, ShowsProgressOnATerminalAndStopsAtCtrlC) {
  server_.Fail({{Kind::kHold, 100'000}});
  {
    TerminalProgram get({"get", kRepository});
    server_.AwaitHeld(1);
    AwaitPart(100'000);
    get.Type("\x03");
    EXPECT_THAT(get.ReadUntil("goes on from there\n"), HasSubstr("hearth: interrupted"));
    EXPECT_EQ(get.WaitForExit(), 1);
  }
  server_.Release();
  server_.TakeRanges();
  TerminalProgram again({"get", kRepository});
  again.ReadUntil("is here\n");
  EXPECT_EQ(again.WaitForExit(), 0);
  EXPECT_THAT(server_.TakeRanges(), testing::ElementsAre("bytes=100000-"));
}

TEST_F(GetCommandTest, AsksBeforeItRemoves) {
  Get();
  TerminalProgram no({"rm", "tiny"});
  EXPECT_THAT(no.ReadUntil("[y/N] "), HasSubstr("Remove tester/Tiny-Llama-GGUF:F32 (397 KiB)?"));
  no.Type("n\n");
  no.ReadUntil("Nothing was removed.");
  EXPECT_EQ(no.WaitForExit(), 1);
  EXPECT_TRUE(fs::exists(ModelPath()));
  TerminalProgram yes({"rm", "tiny"});
  yes.ReadUntil("[y/N] ");
  yes.Type("y\n");
  yes.ReadUntil("removed tester/");
  EXPECT_EQ(yes.WaitForExit(), 0);
  EXPECT_FALSE(fs::exists(ModelPath()));
}

TEST_F(GetCommandTest, InspectsBeforeItIsHere) {
  const ProgramResult remote = RunHearth({"inspect", kRepository, "--json"});
  ASSERT_EQ(remote.exit_code, 0) << remote.err;
  EXPECT_EQ(remote.err, "");  // what it does is said on terminals
  EXPECT_FALSE(fs::exists(Models()));
  json there = json::parse(remote.out);
  EXPECT_EQ(there["file"], std::string(kRepository) + "/tiny-llama-F32.gguf");
  Get();
  json here = json::parse(RunHearth({"inspect", kRepository, "--json"}).out);
  there.erase("file");
  here.erase("file");
  EXPECT_EQ(there, here);
  ExpectRefused(RunHearth({"inspect", "tester/nobody"}), 1,
                "there is no file or model 'tester/nobody' here, nor on the hub: tester/nobody: " +
                    server_.endpoint() + " has no such public repository");
}

}  // namespace
}  // namespace hearth
