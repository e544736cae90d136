// The service without HTTP, its threads and connections: what runs where, and in which order.
#include "serve/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
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

// Two adapters of the golden "llama", of which the second is off by default.
class AdapterServiceTest : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  Response Ask(const std::string& method, const std::string& path, const std::string& body) {
    const auto reply = std::make_shared<RecordedReply>();
    const auto exchange = service_.Handle({.method = method, .target = path}, body, reply);
    while (reply->count == 0) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !posted_.empty(); });
      const auto next = std::move(posted_.front());
      posted_.pop_front();
      lock.unlock();
      next();
    }
    return reply->last;
  }
  Json Scales() { return Json::parse(Ask("GET", "/lora-adapters", "").body); }
  // The text, and how much of the prompt was there already.
  std::pair<std::string, int> Complete(const std::string& more) {
    const Json answer = Json::parse(
        Ask("POST", "/v1/completions",
            R"({"prompt": [5, 6, 7, 8, 9, 10, 11, 12, 13], "max_tokens": 12, "temperature": 0)" +
                more + "}")
            .body);
    EXPECT_TRUE(answer.contains("choices")) << answer;
    return {answer["choices"][0]["text"],
            answer["usage"]["prompt_tokens_details"]["cached_tokens"]};
  }

  static std::string Adapter(const std::string& name) {
    return SourcePath("tests/goldens/adapters/" + name);
  }
  void Put(std::function<void()> run) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(run));
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> posted_;  // guarded by mutex_
  api::Model model_ = api::Model::Load(
      SourcePath("tests/goldens/llama.gguf"),
      {.threads = 1, .adapters = {{Adapter("llama-a"), 1}, {Adapter("llama-b"), 0}}});
  Service service_{model_,
                   {},
                   [this](std::function<void()> run) { Put(std::move(run)); },
                   [](const std::function<void()>& run) { run(); }};
};

TEST_F(AdapterServiceTest, RequestsChooseAmongThem) {
  const auto by_default = Complete("");
  EXPECT_EQ(by_default.second, 0);
  EXPECT_EQ(Complete(R"(, "lora": [{"id": 0, "scale": 1}])"), std::pair(by_default.first, 8));
  const auto none = Complete(R"(, "lora": [])");
  EXPECT_NE(none.first, by_default.first);
  EXPECT_EQ(none.second, 0) << "another text's keys are not its own";
  const auto half = Complete(R"(, "lora": [{"id": 0, "scale": 0.5}])");
  EXPECT_EQ(half.second, 0);
  const auto both = Complete(R"(, "lora": [{"id": 1, "scale": 1}, {"id": 0, "scale": 1}])");
  EXPECT_NE(both.first, by_default.first);
  const Response refused =
      Ask("POST", "/v1/completions", R"({"prompt": "a", "lora": [{"id": 2, "scale": 1}]})");
  EXPECT_EQ(refused.status, Status::kBadRequest);
  EXPECT_THAT(refused.body, HasSubstr("expected 0 to 1, found 2"));
}

TEST_F(AdapterServiceTest, DefaultScalesCanBeReadAndChanged) {
  EXPECT_EQ(Scales(), Json::parse(R"([{"id": 0, "path": ")" + Adapter("llama-a") +
                                  R"(", "scale": 1.0}, {"id": 1, "path": ")" + Adapter("llama-b") +
                                  R"(", "scale": 0.0}])"));
  const auto before = Complete("");
  EXPECT_EQ(Ask("POST", "/lora-adapters", R"([{"id": 1, "scale": 0.5}])").status, Status::kOk);
  EXPECT_EQ(Scales()[0]["scale"], 0.0) << "what is not listed is off";
  EXPECT_EQ(Scales()[1]["scale"], 0.5);
  EXPECT_NE(Complete("").first, before.first);
  EXPECT_EQ(Ask("POST", "/lora-adapters", R"([{"id": 0, "scale": 1}])").status, Status::kOk);
  EXPECT_EQ(Complete(""), std::pair(before.first, 8));
  for (const char* bad : {"", "{}", "[1]", R"([{"id": 0}])", R"([{"id": 7, "scale": 1}])",
                          R"([{"id": 0, "scale": 1}, {"id": 0, "scale": 1}])"}) {
    EXPECT_EQ(Ask("POST", "/lora-adapters", bad).status, Status::kBadRequest) << bad;
  }
  EXPECT_EQ(Complete("").first, before.first) << "what was refused changed nothing";
}

}  // namespace
}  // namespace hearth::serve
