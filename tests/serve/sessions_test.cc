// `hearth serve --session-dir`: conversations that outlive the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "json_schema.h"
#include "program.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ServeSessionsTest : public ::testing::Test {
 protected:
  ServeSessionsTest() { std::filesystem::remove_all(folder_); }
  ~ServeSessionsTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<ServerProcess> Start(std::vector<std::string> more = {}) const {
    std::vector<std::string> options = {"--threads", "2", "--session-dir", folder_};
    options.insert(options.end(), more.begin(), more.end());
    return std::make_unique<ServerProcess>(Model(), options);
  }
  static std::string Model() { return SourcePath("models/hearth-stories-5m.gguf"); }
  static void Stop(ServerProcess& server) {
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0);
  }

  // Says something in a conversation, and takes the answer into it.
  static json Say(ServerProcess& server, json* messages, const std::string& text) {
    messages->push_back({{"role", "user"}, {"content", text}});
    const json request = {{"messages", *messages},
                          {"max_tokens", 60},
                          {"seed", 5},
                          {"logprobs", true},
                          {"top_logprobs", 3}};
    json answer = server.Connect().Post("/v1/chat/completions", request).Json();
    messages->push_back(answer["choices"][0]["message"]);
    return answer;
  }

  const std::string folder_ = ::testing::TempDir() + "serve_sessions." + std::to_string(getpid());
};

TEST_F(ServeSessionsTest, AConversationGoesOnAfterARestartToTheBit) {
  json kept = json::array(), restarted = json::array();
  const auto calm =
      std::make_unique<ServerProcess>(Model(), std::vector<std::string>{"--threads", "2"});
  for (const char* text : {"Tell me a story about a fox.", "What did the fox find?", "And then?"}) {
    const auto server = Start();
    const json expected = Say(*calm, &kept, text);
    const json answer = Say(*server, &restarted, text);
    EXPECT_EQ(answer["choices"], expected["choices"]) << "logarithms of probabilities too";
    EXPECT_EQ(answer["usage"], expected["usage"]) << "and what was not computed again";
    if (kept.size() > 2) {
      EXPECT_GT(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 60);
      EXPECT_EQ(server->Metric("hearth_sessions_restored_total"), 1);
      EXPECT_GT(server->Metric("hearth_sessions_restored_bytes_total"), 0);
    }
    const json stats = server->Connect().Get("/v1/hearth/stats").Json();
    EXPECT_THAT(SchemaComplaints(Schema("stats"), stats), ::testing::IsEmpty());
    Stop(*server);
  }
}

TEST_F(ServeSessionsTest, OneServerForAFolder) {
  const auto server = Start();
  const ProgramResult second =
      RunHearth({"serve", Model(), "--port", "0", "--session-dir", folder_});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("another server keeps its sessions there"));
  const ProgramResult alone =
      RunHearth({"serve", Model(), "--session-dir", "none", "--session-limit", "1G"});
  EXPECT_EQ(alone.exit_code, 2) << "a limit of nothing";
  for (const char* limit : {"much", "0"}) {
    const ProgramResult senseless =
        RunHearth({"serve", Model(), "--session-dir", folder_, "--session-limit", limit});
    EXPECT_EQ(senseless.exit_code, 2);
  }
}

TEST_F(ServeSessionsTest, ARequestThatIsEndedByTheStopIsSavedWithinTheGrace) {
  const auto server = Start({"--grace", "2"});
  json request = {{"prompt", "Once upon a time"}, {"max_tokens", 480}, {"seed", 5}, {"n", 4}};
  for (const int id : {0, 1, 2, 2046, 2047}) request["logit_bias"][std::to_string(id)] = -100;
  HttpClient client = server->Connect();
  client.SendPost("/v1/completions", request);
  EXPECT_TRUE(server->WaitFor("hearth_requests_running", 4));
  Stop(*server);
  const auto again = Start();
  EXPECT_GE(again->Metric("hearth_sessions"), 1);
  EXPECT_EQ(again->Metric("hearth_sessions_failed_total"), 0);
}

TEST_F(ServeSessionsTest, AKilledServerLeavesNothingThatHarms) {
  json chat = json::array();
  {
    const auto server = Start();
    Say(*server, &chat, "Tell me a story about a boat.");
    Stop(*server);
  }
  // As if it had died while it wrote.
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    if (file.path().extension() != ".session") continue;
    std::filesystem::resize_file(file.path(), file.file_size() / 2);
  }
  std::ofstream(folder_ + "/0000000000000000.session.1.partial") << "half";
  {
    const auto server = Start();
    EXPECT_THAT(server->notices(), HasSubstr("it is removed"));
    EXPECT_EQ(server->Metric("hearth_sessions"), 0);
    const json answer = Say(*server, &chat, "And then?");
    EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    server->Signal(SIGKILL);
    server->Wait();
  }
  Stop(*Start());  // the lock went with it
}

// Where nobody says anything of sessions.
class ServeUsualSessionsTest : public ServeSessionsTest {
 protected:
  ServeUsualSessionsTest() { setenv("XDG_STATE_HOME", folder_.c_str(), 1); }
  ~ServeUsualSessionsTest() override { unsetenv("XDG_STATE_HOME"); }

  static std::unique_ptr<ServerProcess> StartAsUsual() {
    return std::make_unique<ServerProcess>(Model(), std::vector<std::string>{"--threads", "2"},
                                           true);
  }
  static int ModeOf(const std::filesystem::path& path) {
    return static_cast<int>(std::filesystem::status(path).permissions());
  }
};

TEST_F(ServeUsualSessionsTest, ConversationsGoOnAfterARestartWithoutBeingAskedTo) {
  json chat = json::array();
  for (const char* text : {"Tell me a story about a fox.", "What did the fox find?"}) {
    const auto server = StartAsUsual();
    EXPECT_THAT(server->notices(), HasSubstr("conversations are kept in " + folder_));
    const json answer = Say(*server, &chat, text);
    if (chat.size() > 2) {
      EXPECT_GT(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 60);
    }
    Stop(*server);
  }
  const std::filesystem::path root = folder_ + "/hearth/sessions";
  EXPECT_EQ(ModeOf(root), 0700);
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    EXPECT_EQ(ModeOf(entry.path()), entry.is_directory() ? 0700 : 0600) << entry.path();
    files += entry.path().extension() == ".session" ? 1 : 0;
  }
  EXPECT_EQ(files, 1u) << "the longer conversation replaces its beginning";
}

TEST_F(ServeUsualSessionsTest, ASecondServerOfTheModelGoesOnWithout) {
  const auto first = StartAsUsual();
  const auto second = StartAsUsual();
  EXPECT_THAT(second->notices(), HasSubstr("warning: conversations are not kept: "));
  EXPECT_THAT(second->notices(), HasSubstr("another server keeps its sessions there"));
  json one = json::array(), other = json::array();
  EXPECT_EQ(Say(*first, &one, "Tell me a story about a fox.")["choices"],
            Say(*second, &other, "Tell me a story about a fox.")["choices"]);
  Stop(*second);
  Stop(*first);
  EXPECT_EQ(StartAsUsual()->Metric("hearth_sessions"), 1);
}

TEST_F(ServeUsualSessionsTest, AFolderThatCannotBeMadeIsOneWarning) {
  setenv("XDG_STATE_HOME", "/proc/none", 1);
  const auto server = StartAsUsual();
  const std::string& said = server->notices();
  EXPECT_THAT(said,
              HasSubstr("conversations are not kept: /proc/none/hearth/sessions: cannot make"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  json chat = json::array();
  EXPECT_FALSE(Say(*server, &chat, "Hello.")["choices"].empty());
}

TEST_F(ServeUsualSessionsTest, NoneKeepsNothing) {
  {
    ServerProcess server(Model(), {"--threads", "2", "--session-dir", "none"});
    json chat = json::array();
    Say(server, &chat, "Hello.");
    Stop(server);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace hearth
