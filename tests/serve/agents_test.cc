// What coding agents send, one after the other, written by hand from the public references of the
// Responses API and the Messages API (tests/serve/recordings).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "program.h"
#include "serve_requests.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Event {
  std::string name;
  json data;
};

// The events of a stream, in the form of both APIs: a name, a document, an empty line.
std::vector<Event> EventsOf(const std::string& body) {
  std::vector<Event> events;
  std::istringstream lines(body);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (!line.starts_with("data: ")) continue;
    events.push_back({name, json::parse(line.substr(6))});
    EXPECT_EQ(events.back().data["type"], name) << line;
  }
  return events;
}

class ServeAgentsTest : public ::testing::Test {
 protected:
  // Agents send more than the model of this repository can read: random weights read it too.
  static void SetUpTestSuite() {
    std::filesystem::create_directory(folder_);
    std::ofstream(folder_ + "/shape.json") << R"({"hidden_size": 64, "intermediate_size": 96,
        "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 32, "vocab_size": 600})";
    const std::string model = folder_ + "/agent.gguf";
    const ProgramResult made =
        RunHearth({"synth", "--shape", folder_ + "/shape.json", "-o", model});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    server_ = new ServerProcess(
        model, {"--parallel", "2", "--ctx", "4096", "--threads", "2", "--chat-format", "zephyr"});
  }
  static void TearDownTestSuite() {
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
    delete server_;
    std::filesystem::remove_all(folder_);
  }

  static HttpResponse Post(const std::string& path, const std::string& recording) {
    const std::string file = SourcePath("tests/serve/recordings/" + recording + ".json");
    return server_->Connect().Post(path, json::parse(ReadWholeFile(file)),
                                   "x-api-key: none\r\nanthropic-version: 2023-06-01\r\n"
                                   "anthropic-beta: interleaved-thinking-2025-05-14\r\n");
  }

  inline static const std::string folder_ =
      ::testing::TempDir() + "serve_agents." + std::to_string(getpid());
  inline static ServerProcess* server_ = nullptr;
};

TEST_F(ServeAgentsTest, TurnsOfTheResponsesApiAreAnswered) {
  for (const char* turn : {"responses_turn_1", "responses_turn_2"}) {
    const HttpResponse response = Post("/v1/responses", turn);
    ASSERT_EQ(response.status, 200) << turn << response.body;
    const std::vector<Event> events = EventsOf(response.body);
    ASSERT_GE(events.size(), 4u);
    EXPECT_EQ(events[0].name, "response.created");
    EXPECT_EQ(events[1].name, "response.in_progress");
    const json& last = events.back().data["response"];
    EXPECT_EQ(events.back().name,
              last["status"] == "completed" ? "response.completed" : "response.incomplete");
    EXPECT_GT(last["usage"]["input_tokens"], 100);
    std::string text;
    int64_t number = 0;
    for (const Event& event : events) {
      EXPECT_EQ(event.data["sequence_number"], number++);
      if (event.name == "response.output_text.delta") {
        text += event.data["delta"].get<std::string>();
      }
    }
    std::string whole;
    for (const json& item : last["output"]) {
      if (item["type"] == "message") whole += item["content"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(text, whole) << turn;
  }
}

TEST_F(ServeAgentsTest, TurnsOfTheMessagesApiAreAnswered) {
  const HttpResponse counted = Post("/v1/messages/count_tokens?beta=true", "messages_count");
  ASSERT_EQ(counted.status, 200) << counted.body;
  for (const char* turn : {"messages_turn_1", "messages_turn_2"}) {
    const HttpResponse response = Post("/v1/messages?beta=true", turn);
    ASSERT_EQ(response.status, 200) << turn << response.body;
    const std::vector<Event> events = EventsOf(response.body);
    ASSERT_GE(events.size(), 4u);
    EXPECT_EQ(events.front().name, "message_start");
    const json& usage = events.front().data["message"]["usage"];
    const int64_t prompt =
        usage["input_tokens"].get<int64_t>() + usage["cache_read_input_tokens"].get<int64_t>();
    if (std::string(turn) == "messages_turn_1") {
      EXPECT_EQ(prompt, counted.Json()["input_tokens"]) << "as it was counted before";
    }
    EXPECT_EQ(events[events.size() - 2].name, "message_delta");
    EXPECT_FALSE(events[events.size() - 2].data["delta"]["stop_reason"].is_null());
    EXPECT_EQ(events.back().name, "message_stop");
    int open = 0;
    for (const Event& event : events) {
      open += event.name == "content_block_start" ? 1 : 0;
      open -= event.name == "content_block_stop" ? 1 : 0;
      EXPECT_TRUE(open == 0 || open == 1) << "blocks come one after the other";
    }
    EXPECT_EQ(open, 0);
  }
}

TEST_F(ServeAgentsTest, ASmallQuestionBesideKeepsToItsSchema) {
  const HttpResponse response = Post("/v1/messages?beta=true", "messages_title");
  ASSERT_EQ(response.status, 200) << response.body;
  std::string text;
  for (const Event& event : EventsOf(response.body)) {
    if (event.name != "content_block_delta") continue;
    text += event.data["delta"].value("text", "");
  }
  const json title = json::parse(text);
  EXPECT_THAT(title["title"].get<std::string>(), ::testing::AnyOf("Folder", "Story"));
}

}  // namespace
}  // namespace hearth
