// Requests to a server of several models: which they mean, and what those get that mean none. The
// models are tiny, and lie in a list instead of a folder.
#include "serve/models/several_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/test_data.h"
#include "serve/service.h"
#include "serve/test_posted_runs.h"

namespace hearth::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

// Any part of a name means the models that have it.
class ListedModels : public ModelSource {
 public:
  std::vector<ModelKey> List() override {
    std::vector<ModelKey> keys;
    for (const auto& [name, path] : paths) keys.push_back({name, path});
    return keys;
  }
  std::vector<ModelKey> Find(const std::string& asked) override {
    std::vector<ModelKey> keys;
    for (const ModelKey& key : List()) {
      if (key.name == asked) return {key};
      if (key.name.find(asked) != std::string::npos) keys.push_back(key);
    }
    return keys;
  }
  uint64_t Measure(const ModelKey&) override { return 60; }
  std::unique_ptr<api::Model> Load(const ModelKey& key, uint64_t,
                                   const std::atomic<bool>&) override {
    return std::make_unique<api::Model>(
        api::Model::Load(key.version, {.threads = 1, .context = 64}));
  }

  std::map<std::string, std::string> paths;
};

struct LastReply : public Reply {
  void Send(Response response) override { last = std::move(response); }
  void BeginStream() override {}
  void SendEvent(std::string_view, std::string_view) override {}
  void EndStream() override {}

  std::optional<Response> last;
};

class SeveralModelsTest : public ::testing::Test {
 protected:
  SeveralModelsTest() {
    for (const char* name : {"llama", "gemma2"}) {
      source_.paths[name] = SourcePath("tests/goldens/" + std::string(name) + ".gguf");
    }
    MakeService("");
  }
  void MakeService(const std::string& default_model) {
    posted_.Clear();
    service_ = std::make_unique<Service>(
        [&](const ServiceContext& shared) {
          return std::make_unique<SeveralModels>(
              source_,
              SharingOptions{
                  .memory_bytes = 110, .program_bytes = 10, .default_model = default_model},
              shared, [this](std::function<void()> run) { loads_.push_back(std::move(run)); },
              [this](const std::string& sentence) { told_.push_back(sentence); });
        },
        ServiceOptions(), [this](std::function<void()> run) { posted_.Post(std::move(run)); },
        [](const std::function<void()>& run) { run(); });
  }
  void RunLoad() {
    const auto run = std::move(loads_.front());
    loads_.pop_front();
    run();
  }

  std::shared_ptr<Exchange> Send(const std::string& method, const std::string& target,
                                 const std::string& body, const std::shared_ptr<Reply>& reply) {
    return service_->Handle({.method = method, .target = target}, body, reply);
  }
  Response Ask(const std::string& method, const std::string& target, const std::string& body = "") {
    const auto reply = std::make_shared<LastReply>();
    const auto exchange = Send(method, target, body, reply);
    while (!reply->last) {
      if (loads_.empty()) {
        posted_.RunOne();
      } else {
        RunLoad();
      }
    }
    Settle();
    return *reply->last;
  }
  // All that is under way comes to its end.
  void Settle() {
    while (!service_->is_idle() || !loads_.empty()) {
      if (loads_.empty()) {
        posted_.RunOne();
      } else {
        RunLoad();
      }
    }
  }
  Json Complete(const std::string& model) {
    return Json::parse(
        Ask("POST", "/v1/completions",
            R"({"prompt": [5, 6, 7, 8], "max_tokens": 8, "temperature": 0, "model": ")" + model +
                "\"}")
            .body);
  }
  Json Models() { return Json::parse(Ask("GET", "/v1/models").body)["data"]; }

  PostedRuns posted_;
  std::deque<std::function<void()>> loads_;
  std::vector<std::string> told_;
  ListedModels source_;
  std::unique_ptr<Service> service_;
};

TEST_F(SeveralModelsTest, RequestsMeanAModelByItsName) {
  std::map<std::string, Json> alone;
  for (const auto& [name, path] : source_.paths) {
    api::Model model = api::Model::Load(path, {.threads = 1, .context = 64});
    api::GenerateRequest request;
    request.prompt = {5, 6, 7, 8};
    request.max_tokens = 8;
    request.sampling.temperature = 0;
    alone[name] = model.Generate(request).text;
  }
  for (const char* name : {"llama", "gemma2", "gemma2", "llama"}) {
    const Json answer = Complete(name);
    EXPECT_EQ(answer["model"], name);
    EXPECT_EQ(answer["choices"][0]["text"], alone[name]) << name;
  }
  EXPECT_THAT(told_, ElementsAre("llama is loaded, in 60 B", "llama is unloaded",
                                 "gemma2 is loaded, in 60 B", "gemma2 is unloaded",
                                 "llama is loaded, in 60 B"))
      << "there is room for one";
  EXPECT_EQ(Complete("emma")["model"], "gemma2") << "the name that it has";
}

TEST_F(SeveralModelsTest, UnknownNamesGetTheNamesThereAre) {
  const std::string sentence = "there is no model 'gpt-4': this server has 'gemma2', 'llama'";
  const std::string ask = R"({"model": "gpt-4", "max_tokens": 4, )";
  const std::string chat = R"("messages": [{"role": "user", "content": "a"}]})";
  const std::pair<const char*, std::string> requests[] = {
      {"/v1/completions", ask + R"("prompt": "a"})"},
      {"/v1/chat/completions", ask + chat},
      {"/v1/responses", R"({"model": "gpt-4", "input": "a"})"},
      {"/v1/embeddings", R"({"model": "gpt-4", "input": "a"})"},
      {"/tokenize", R"({"model": "gpt-4", "content": "a"})"},
      {"/detokenize", R"({"model": "gpt-4", "tokens": [1]})"}};
  for (const auto& [path, body] : requests) {
    const Response response = Ask("POST", path, body);
    EXPECT_EQ(response.status, Status::kNotFound) << path;
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["message"], sentence) << path;
    EXPECT_EQ(error["code"], "model_not_found");
    EXPECT_EQ(error["param"], "model");
  }
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"}) {
    const std::string start = path == std::string("/v1/messages") ? ask : R"({"model": "gpt-4", )";
    const Response response = Ask("POST", path, start + chat);
    EXPECT_EQ(response.status, Status::kNotFound) << path;
    const Json document = Json::parse(response.body);
    EXPECT_EQ(document["type"], "error") << path;
    EXPECT_EQ(document["error"]["type"], "not_found_error");
    EXPECT_THAT(std::string(document["error"]["message"]), HasSubstr(sentence));
  }
  for (const char* path : {"/v1/models/gpt-4", "/v1/hearth/stats?model=gpt-4"}) {
    EXPECT_EQ(Ask("GET", path).status, Status::kNotFound) << path;
  }
  source_.paths["gemma2-other"] = source_.paths["gemma2"];
  EXPECT_THAT(Complete("emma")["error"]["message"].get<std::string>(),
              HasSubstr("may be one of 'gemma2', 'gemma2-other': say which"));
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(SeveralModelsTest, WhoNamesNoneGetsTheOneThatIsLoaded) {
  const Response unclear = Ask("POST", "/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(unclear.status, Status::kBadRequest);
  EXPECT_THAT(unclear.body, HasSubstr("model: say which: this server has 'gemma2', 'llama'"));
  EXPECT_EQ(Ask("GET", "/v1/hearth/stats").status, Status::kBadRequest);
  Complete("llama");
  EXPECT_EQ(Complete("")["model"], "llama");
  EXPECT_EQ(Json::parse(Ask("GET", "/v1/hearth/stats").body)["model"]["name"], "llama");
  EXPECT_THAT(Ask("GET", "/v1/hearth/stats?model=gemma2").body, HasSubstr("model_not_loaded"));
  EXPECT_EQ(Ask("POST", "/tokenize", R"({"content": "a"})").status, Status::kOk);
  EXPECT_EQ(Ask("GET", "/lora-adapters").body, "[]");
  MakeService("");
  source_.paths.erase("llama");
  EXPECT_EQ(Complete("")["model"], "gemma2") << "there is no other";
}

TEST_F(SeveralModelsTest, TheDefaultModelIsThereBeforeTheFirstClient) {
  MakeService("gemma2");
  int calls = 0;
  service_->host().Prepare([&](const RequestError* failure) {
    ++calls;
    EXPECT_EQ(failure, nullptr);
  });
  EXPECT_EQ(calls, 0);
  Settle();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Complete("")["model"], "gemma2");
  MakeService("none");
  service_->host().Prepare([&](const RequestError* failure) {
    ++calls;
    ASSERT_NE(failure, nullptr);
    EXPECT_THAT(failure->what(), HasSubstr("there is no model 'none'"));
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(SeveralModelsTest, ModelsAreListedAsTheyComeAndGo) {
  Complete("llama");
  Json models = Models();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0]["id"], "gemma2");
  EXPECT_EQ(models[0]["loaded"], false);
  EXPECT_FALSE(models[0].contains("context_length")) << "nobody has looked into its file";
  EXPECT_EQ(models[1]["loaded"], true);
  EXPECT_EQ(models[1]["context_length"], 64);
  source_.paths["owner/new:F32"] = source_.paths["llama"];
  EXPECT_EQ(Models().size(), 3u);
  EXPECT_EQ(Json::parse(Ask("GET", "/v1/models/owner/new:F32").body)["id"], "owner/new:F32");
  EXPECT_EQ(Complete("owner/new:F32")["model"], "owner/new:F32");
  source_.paths.erase("owner/new:F32");
  EXPECT_EQ(Models().size(), 2u);
  Settle();
  EXPECT_EQ(told_.back(), "owner/new:F32 is unloaded") << "its file is gone";
  EXPECT_EQ(Complete("owner/new:F32")["error"]["code"], "model_not_found");
}

TEST_F(SeveralModelsTest, MetricsNameTheModel) {
  EXPECT_THAT(Ask("GET", "/metrics").body, HasSubstr("\nhearth_models_loaded 0\n"));
  Complete("llama");
  Settle();  // an answer is sent before its request counts as done
  const std::string text = Ask("GET", "/metrics").body;
  for (const char* line :
       {"hearth_models_loaded 1", "hearth_model_loads_total 1", "hearth_memory_limit_bytes 110",
        "hearth_models_waiting 0", "hearth_memory_bytes{purpose=\"program\"} 10",
        "hearth_requests_running{model=\"llama\"} 0",
        "hearth_kv_pages{model=\"llama\",state=\"flash\"} 0"}) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(line) + "\n"));
  }
  EXPECT_THAT(Ask("GET", "/health").body, HasSubstr("\"ok\""));
}

TEST_F(SeveralModelsTest, WhoHasGoneWaitsNoLonger) {
  const auto first = std::make_shared<LastReply>(), second = std::make_shared<LastReply>();
  const std::string body = R"({"model": "llama", "content": "a"})";
  const auto gone = Send("POST", "/tokenize", body, first);
  const auto stays = Send("POST", "/tokenize", body, second);
  ASSERT_NE(gone, nullptr);
  EXPECT_FALSE(service_->is_idle());
  gone->Abandon();
  Settle();
  EXPECT_FALSE(first->last);
  EXPECT_EQ(first.use_count(), 1) << "nobody holds the connection any more";
  ASSERT_TRUE(second->last);
  EXPECT_EQ(second->last->status, Status::kOk);
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(SeveralModelsTest, AFileThatCannotBeLoadedEndsItsRequestsAlone) {
  source_.paths["broken"] = SourcePath("tests/goldens/llama.json");
  const Json broken = Complete("broken");
  EXPECT_EQ(broken["error"]["code"], "model_unusable");
  EXPECT_THAT(broken["error"]["message"].get<std::string>(),
              HasSubstr("the model 'broken' cannot be loaded: "));
  EXPECT_EQ(Complete("llama")["model"], "llama");
}

}  // namespace
}  // namespace hearth::serve
