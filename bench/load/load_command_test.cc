// hearth_load against a server, and against what is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/test_data.h"
#include "json_schema.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Said {
  int exit_code = -1;
  std::string out;  // standard error too
};

Said RunLoad(const std::string& arguments) {
  const std::string command = std::string(HEARTH_LOAD) + " " + arguments + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  Said said;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), pipe)) {
    said.out.append(buffer, count);
  }
  said.exit_code = WEXITSTATUS(pclose(pipe));
  return said;
}

ServerProcess StartServer(const std::vector<std::string>& more) {
  std::vector<std::string> options = {"--threads", "2", "--ctx", "256"};
  options.insert(options.end(), more.begin(), more.end());
  return {SourcePath("models/hearth-stories-5m.gguf"), options};
}

std::string UrlOf(const ServerProcess& server) {
  return "--url http://127.0.0.1:" + std::to_string(server.port());
}

TEST(LoadCommandTest, CountsWhatTheServerCounts) {
  const ServerProcess server = StartServer({"--parallel", "4"});
  const Said said = RunLoad(UrlOf(server) +
                            " --clients 4 --seconds 1.5 --warm-up 0 --tokens 4-16 --prompt-words "
                            "2-10 --shared-prefix 20 --sample-seconds 0.1 --json --pid " +
                            std::to_string(getpid()));
  ASSERT_EQ(said.exit_code, 0) << said.out;
  const json run = json::parse(said.out);
  EXPECT_THAT(SchemaComplaints(Schema("load"), run), IsEmpty());
  const auto completed = run["requests"]["completed"].get<int64_t>();
  EXPECT_GT(completed, 0);
  EXPECT_EQ(run["requests"]["errors"], json::object());
  EXPECT_EQ(run["watch_errors"], json::object());
  EXPECT_GE(run["first_token_ms"]["count"], completed);
  EXPECT_GT(run["tokens"]["cached_prompt"], 0) << "of the shared prefix";
  const auto& speed = run["tokens"]["of_a_client_per_second"];
  EXPECT_LE(speed["least"], speed["mean"]);
  EXPECT_LE(speed["mean"], speed["most"]);
  // Answers that ended after the window are the server's alone; its first tokens are of prompts.
  const double counted = run["tokens"]["generated"];
  EXPECT_LE(counted, server.Metric("hearth_generated_tokens_total") +
                         server.Metric("hearth_time_to_first_token_seconds_count"));
  EXPECT_GT(run["server"]["tokens_per_pass"], 1);
  bool saw_memory = false;
  for (const json& trend : run["trends"]) {
    saw_memory = saw_memory || (trend["name"] == "resident_bytes" && trend["points"] > 3);
  }
  EXPECT_TRUE(saw_memory);
}

TEST(LoadCommandTest, ComesAgainWhenItIsTold) {
  const ServerProcess server = StartServer({"--parallel", "1", "--queue", "1"});
  const Said said = RunLoad(UrlOf(server) +
                            " --clients 6 --seconds 2.5 --warm-up 0 --tokens 100 --kind completion "
                            "--requests-per-connection 2 --json");
  ASSERT_EQ(said.exit_code, 0) << said.out;
  const json run = json::parse(said.out);
  EXPECT_GT(run["requests"]["refused"], 0);
  EXPECT_GT(run["requests"]["refused_wait_seconds"], 0.5);
  EXPECT_GT(run["requests"]["completed"], 0);
}

TEST(LoadCommandTest, SaysWhatWentWrong) {
  const Said nobody = RunLoad("--url http://127.0.0.1:1 --clients 2 --seconds 0.6");
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.out, HasSubstr("connection: Connection refused"));
  EXPECT_EQ(RunLoad("--url ftp://x --seconds 1").exit_code, 2);
  EXPECT_EQ(RunLoad("--tokens 9-3").exit_code, 2);
  EXPECT_EQ(RunLoad("--seconds 1 --warm-up 1").exit_code, 2);
  EXPECT_EQ(RunLoad("--unknown").exit_code, 2);
  // A prompt that is too long for the server.
  const ServerProcess server = StartServer({});
  const Said refused =
      RunLoad(UrlOf(server) + " --clients 1 --seconds 0.6 --prompt-words 5000 --json");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(
      json::parse(refused.out)["requests"]["errors"].contains("http 400 context_length_exceeded"))
      << refused.out;
}

}  // namespace
}  // namespace hearth
