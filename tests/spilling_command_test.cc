// --kv-memory and --kv-dir: long contexts whose keys and values lie on flash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "json_schema.h"
#include "prepare/pack/test_pack_models.h"
#include "program.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Some 3,000 tokens: those of a synthesized vocabulary are bytes and few more.
std::string LongText() {
  std::string text;
  for (int i = 0; i < 800; ++i)
    text += static_cast<char>('a' + i % 23) + std::to_string(i % 97) + " ";
  return text;
}

class SpillingCommandTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("spilling_command");
    MakeModel(Model(),
              R"({"arch": "llama", "hidden_size": 64, "intermediate_size": 96, "num_layers": 8,
                  "num_heads": 2, "num_kv_heads": 1, "head_dim": 32, "vocab_size": 600})",
              DType::kQ8_0);
    std::filesystem::create_directory(Spills());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string Model() { return folder_->Path("model.gguf"); }
  static std::string Spills() { return folder_->Path("spills"); }
  static std::vector<std::string> Spilling(const std::string& memory) {
    return {"--ctx", "4096", "--kv-memory", memory, "--kv-dir", Spills()};
  }
  static ProgramResult Run(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run",       Model(), "--raw",  "-n", "20",
                                    "--threads", "2",     "--temp", "0"};
    all.insert(all.end(), more.begin(), more.end());
    return RunHearth(all, LongText());
  }

  static TestFolder* folder_;
};

TestFolder* SpillingCommandTest::folder_ = nullptr;

TEST_F(SpillingCommandTest, SaysTheSameFromLessMemory) {
  const ProgramResult whole = Run({"--ctx", "4096", "--json", "-f", "-"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const json expected = json::parse(whole.out);
  ASSERT_GT(expected["prefill"]["tokens"], 1500);
  EXPECT_EQ(expected["memory"]["kv"]["flash"], nullptr);
  std::vector<std::string> options = Spilling("2M");
  options.insert(options.end(), {"--json", "-f", "-"});
  const ProgramResult spilled = Run(options);
  ASSERT_EQ(spilled.exit_code, 0) << spilled.err;
  const json found = json::parse(spilled.out);
  EXPECT_THAT(SchemaComplaints(Schema("run"), found), IsEmpty());
  EXPECT_EQ(found["token_ids"], expected["token_ids"]);
  const json& memory = found["memory"];
  EXPECT_EQ(memory["kv"]["full_bytes"], expected["memory"]["kv"]["full_bytes"]);
  EXPECT_GT(memory["kv"]["flash"]["full_bytes"], 0);
  EXPECT_GT(memory["kv"]["flash"]["written_bytes"], 0);
  EXPECT_GT(memory["kv"]["flash"]["read_bytes"], 0);
  EXPECT_LE(
      memory["ledger"]["kv cache"].get<uint64_t>() + memory["ledger"]["kv buffers"].get<uint64_t>(),
      uint64_t{2} << 20);
}

TEST_F(SpillingCommandTest, SaysWhereKeysAndValuesAre) {
  std::vector<std::string> options = Spilling("2M");
  options.insert(options.end(), {"--verbose", "-f", "-"});
  const ProgramResult result = Run(options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("kv on flash"));
  EXPECT_THAT(result.err, HasSubstr("in a file in " + Spills()));
}

TEST_F(SpillingCommandTest, RefusesWhatCannotBe) {
  const ProgramResult little = Run(Spilling("100K"));
  EXPECT_EQ(little.exit_code, 1);
  EXPECT_THAT(little.err, HasSubstr("--kv-memory: memory for a context of 4096 tokens, of which "
                                    "the rest lies in a file: expected at least 2M"));
  const ProgramResult nowhere = RunHearth({"run", Model(), "--raw", "-p", "a", "--ctx", "4096",
                                           "--kv-memory", "2M", "--kv-dir", "/no/such/folder"});
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("/no/such/folder: no file can be made in it"));
  EXPECT_EQ(RunHearth({"run", Model(), "-p", "a", "--kv-memory", "much"}).exit_code, 2);
}

TEST_F(SpillingCommandTest, LeavesNoFileHoweverItEnds) {
  const json request = {{"prompt", LongText()}, {"max_tokens", 500}, {"temperature", 0}};
  for (const int signal : {SIGKILL, SIGTERM}) {
    std::vector<std::string> options = Spilling("2M");
    options.insert(options.end(), {"--threads", "2", "--parallel", "1"});
    ServerProcess server(Model(), options);
    HttpClient client = server.Connect();
    ASSERT_TRUE(client.SendPost("/v1/completions", request));
    for (int i = 0; i < 1000; ++i) {
      if (server.Metric("hearth_kv_pages{state=\"flash\"}") > 0) break;
      usleep(10'000);
    }
    EXPECT_GT(server.Metric("hearth_kv_pages{state=\"flash\"}"), 0);
    EXPECT_TRUE(std::filesystem::is_empty(Spills())) << "the file has no name";
    server.Signal(signal);
    server.Wait();
    EXPECT_TRUE(std::filesystem::is_empty(Spills()));
  }
}

}  // namespace
}  // namespace hearth
