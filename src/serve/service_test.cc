// The service without HTTP, its threads and connections: what runs where, and in which order.
#include "serve/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <string>

#include "base/test_data.h"

namespace hearth::serve {
namespace {

using ::testing::HasSubstr;

struct RecordedReply : public Reply {
  void Send(Response response) override {
    ++count;
    last = std::move(response);
  }
  void BeginStream() override {}
  void SendEvent(std::string_view, std::string_view) override {}
  void EndStream() override {}

  int count = 0;
  Response last;
};

// Work and what it posts wait here until they are run.
class ServiceTest : public ::testing::Test {
 protected:
  static void Run(std::deque<std::function<void()>>& queue) {
    while (!queue.empty()) {
      const auto next = std::move(queue.front());
      queue.pop_front();
      next();
    }
  }
  std::shared_ptr<Exchange> Post(const std::string& path, const std::string& body,
                                 const std::shared_ptr<Reply>& reply) {
    return service_.Handle({.method = "POST", .target = path}, body, reply);
  }
  static std::string TokenizeBody(size_t bytes) {
    return R"({"content": ")" + std::string(bytes, 'a') + "\"}";
  }

  api::Model model_ = api::Model::Load(SourcePath("tests/goldens/llama.gguf"), {.threads = 1});
  std::deque<std::function<void()>> posted_, work_;
  Service service_{model_,
                   {.long_body_bytes = 1000},
                   [this](std::function<void()> run) { posted_.push_back(std::move(run)); },
                   [this](std::function<void()> run) { work_.push_back(std::move(run)); }};
};

TEST_F(ServiceTest, LongBodiesKeepNobodyWaiting) {
  const auto slow = std::make_shared<RecordedReply>();
  const auto quick = std::make_shared<RecordedReply>();
  const auto exchange = Post("/tokenize", TokenizeBody(5000), slow);
  EXPECT_NE(exchange, nullptr);
  EXPECT_FALSE(service_.is_idle()) << "a server that stops waits for it";
  EXPECT_EQ(Post("/tokenize", TokenizeBody(10), quick), nullptr);
  EXPECT_EQ(quick->count, 1) << "at once";
  EXPECT_EQ(slow->count, 0);
  Run(work_);
  EXPECT_EQ(slow->count, 0) << "answers are given on the server's thread";
  Run(posted_);
  EXPECT_EQ(slow->count, 1);
  EXPECT_THAT(slow->last.body, HasSubstr("\"tokens\""));
  EXPECT_TRUE(service_.is_idle());
}

TEST_F(ServiceTest, ErrorsOfLongBodiesAreAnswersToo) {
  const auto reply = std::make_shared<RecordedReply>();
  Post("/tokenize", std::string(2000, '['), reply);
  Run(work_);
  Run(posted_);
  EXPECT_EQ(reply->count, 1);
  EXPECT_EQ(reply->last.status, Status::kBadRequest);
  Post("/v1/chat/completions", R"({"messages": [], "stop": ")" + std::string(2000, 'a') + "\"}",
       reply);
  Run(work_);
  Run(posted_);
  EXPECT_EQ(reply->count, 2);
  EXPECT_EQ(reply->last.status, Status::kBadRequest);
}

TEST_F(ServiceTest, SchemasKeepNobodyWaiting) {
  using nlohmann::json;
  const json messages = {{{"role", "user"}, {"content", "Hello"}}};
  const json schema = {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}};
  const json format = {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
  const json tools = {
      {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", schema}}}}};
  for (const json& body :
       {json{{"messages", messages}, {"response_format", format}},
        json{{"messages", messages}, {"response_format", {{"type", "json_object"}}}},
        json{{"messages", messages}, {"tools", tools}, {"tool_choice", "required"}}}) {
    const auto reply = std::make_shared<RecordedReply>();
    const auto quick = std::make_shared<RecordedReply>();
    const auto exchange = Post("/v1/chat/completions", body.dump(), reply);
    ASSERT_NE(exchange, nullptr);
    EXPECT_EQ(work_.size(), 1u) << body;
    EXPECT_EQ(Post("/tokenize", TokenizeBody(10), quick), nullptr);
    EXPECT_EQ(quick->count, 1) << "at once";
    EXPECT_EQ(reply->count, 0);
    Run(work_);
    EXPECT_EQ(reply->count, 0) << "answers are given on the server's thread";
    Run(posted_);
    EXPECT_EQ(reply->count, 1) << "the model has no chat template";
    EXPECT_TRUE(service_.is_idle());
  }
}

TEST_F(ServiceTest, NobodyIsAnsweredWhoHasGone) {
  const auto reply = std::make_shared<RecordedReply>();
  for (const bool work_first : {false, true}) {
    const auto exchange = Post("/tokenize", TokenizeBody(5000), reply);
    if (work_first) Run(work_);
    exchange->Abandon();
    Run(work_);
    Run(posted_);
    EXPECT_EQ(reply->count, 0);
    EXPECT_TRUE(service_.is_idle());
  }
  EXPECT_EQ(reply.use_count(), 1) << "nobody holds the connection any more";
}

}  // namespace
}  // namespace hearth::serve
