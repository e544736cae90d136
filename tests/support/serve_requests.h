// A server of the embedded model for a suite of tests, and requests to it.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "server_process.h"

namespace hearth {

inline std::string Stories() { return SourcePath("models/hearth-stories-5m.gguf"); }

// Tokens that end an answer. Where they are forbidden it goes on until its length is reached.
inline constexpr int kEndTokens[] = {0, 1, 2, 2046, 2047};

inline nlohmann::json EndlessBias() {
  nlohmann::json bias;
  for (const int id : kEndTokens) bias[std::to_string(id)] = -100;
  return bias;
}

inline nlohmann::json Completion(const std::string& prompt, int tokens) {
  return {{"prompt", prompt},           {"max_tokens", tokens}, {"seed", 7},
          {"temperature", 0.8},         {"top_p", 0.95},        {"top_k", 40},
          {"logit_bias", EndlessBias()}};
}

inline nlohmann::json Chat(const std::string& question) {
  return {{"messages", {{{"role", "user"}, {"content", question}}}}, {"seed", 3}};
}

// What a stream of completions or chats adds up to.
inline std::string JoinedText(const std::vector<nlohmann::json>& events) {
  std::string text;
  for (const nlohmann::json& event : events) {
    for (const nlohmann::json& choice : event["choices"]) {
      text += choice.contains("text") ? choice["text"].get<std::string>()
                                      : choice["delta"].value("content", "");
    }
  }
  return text;
}

// Memory that a process may keep of what it gave back: sanitizers hold it for a while.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int64_t kKeptBytes = int64_t{512} << 20;
#else
inline constexpr int64_t kKeptBytes = int64_t{4} << 20;
#endif

class StoriesServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new ServerProcess(Stories(), {"--parallel", "4", "--queue", "4", "--threads", "2"});
  }
  static void TearDownTestSuite() {
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
    delete server_;
  }
  static HttpClient Connect() { return server_->Connect(); }

  inline static ServerProcess* server_ = nullptr;  // of the suite that runs
};

}  // namespace hearth
