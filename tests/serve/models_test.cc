// `hearth serve --models`: several models within one memory limit, as clients see them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/test_folder.h"
#include "memory_group.h"
#include "prepare/pack/test_pack_models.h"
#include "program.h"
#include "serve_requests.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// What the clients in this process may take beside the server, of a group of both.
constexpr uint64_t kClientBytes = uint64_t{4} << 20;

// The model of the repository and one of 22 MiB with random weights, in a folder.
class ServeModelsTest : public ::testing::Test {
 protected:
  static constexpr char kStories[] = "hearth-stories-5m";
  static constexpr char kRandom[] = "random";

  static void SetUpTestSuite() {
    made_ = new TestFolder("serve_models_made");
    MakeModel(made_->Path("random.gguf"),
              R"({"arch": "llama", "hidden_size": 512, "intermediate_size": 2048, "num_layers": 5,
                  "num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000})",
              DType::kQ8_0);
  }
  static void TearDownTestSuite() {
    delete made_;
    made_ = nullptr;
  }
  void SetUp() override {
    fs::copy_file(Stories(), Path(kStories));
    fs::copy_file(made_->Path("random.gguf"), Path(kRandom));
  }

  std::string Path(const std::string& name) const { return folder_.Path(name + ".gguf"); }
  static std::vector<std::string> Options(const std::vector<std::string>& more) {
    std::vector<std::string> options = {"--threads", "2", "--ctx", "256", "--parallel", "2"};
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  std::unique_ptr<ServerProcess> Start(const std::vector<std::string>& more = {},
                                       const std::string& first = "") const {
    std::vector<std::string> options = Options(more);
    options.insert(options.end(), {"--models", folder_.Path("")});
    return std::make_unique<ServerProcess>(first, options);
  }
  static void Stop(ServerProcess& server) {
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0);
  }

  // A request whose answer is always the same.
  static json Request(const std::string& model, int number) {
    return {{"model", model},
            {"prompt", {9 + number, 100, 200, 300}},
            {"max_tokens", 12},
            {"temperature", 0},
            {"logit_bias", {{"0", -100}, {"1", -100}, {"2", -100}}}};
  }
  static std::string TextOf(const json& answer) {
    return answer.contains("choices") ? answer["choices"][0]["text"].get<std::string>()
                                      : answer.dump();
  }
  static std::string Complete(const ServerProcess& server, const std::string& model, int number) {
    return TextOf(server.Connect().Post("/v1/completions", Request(model, number)).Json());
  }
  static std::vector<std::string> AllOf(const ServerProcess& server, const std::string& model) {
    std::vector<std::string> texts;
    for (int i = 0; i < 4; ++i) texts.push_back(Complete(server, model, i));
    return texts;
  }
  std::vector<std::string> AnswersAlone(const std::string& model) const {
    const ServerProcess server(Path(model), Options({}));
    return AllOf(server, model);
  }

  // The sum of what /metrics says of the memory for one model, or for all and the program.
  static uint64_t Promised(const ServerProcess& server, const std::string& model = "") {
    std::istringstream lines(server.Connect().Get("/metrics").body);
    const std::string begin =
        model.empty() ? "hearth_memory_bytes{" : "hearth_memory_bytes{model=\"" + model + "\"";
    uint64_t sum = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(begin, 0) == 0) sum += std::stoull(line.substr(line.rfind(' ') + 1));
    }
    return sum;
  }
  // A limit that has room for either of the two, not for both.
  uint64_t LimitForOne() const {
    const auto server = Start({"--memory", "2G"});
    Complete(*server, kStories, 0);
    Complete(*server, kRandom, 0);
    EXPECT_EQ(server->Metric("hearth_models_loaded"), 2);
    const uint64_t all = Promised(*server);
    const uint64_t stories = Promised(*server, kStories), random = Promised(*server, kRandom);
    EXPECT_GT(stories, uint64_t{5} << 20);
    EXPECT_GT(random, uint64_t{20} << 20);
    // The program differs a little from run to run.
    return all - std::min(stories, random) / 2;
  }

  inline static TestFolder* made_ = nullptr;
  const TestFolder folder_{"serve_models"};
};

TEST_F(ServeModelsTest, TwoModelsTakeTurnsInMemoryForOne) {
  const std::vector<std::string> stories = AnswersAlone(kStories), random = AnswersAlone(kRandom);
  ASSERT_NE(stories, random);
  const uint64_t limit = LimitForOne();
  std::optional<MemoryGroup> group;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  group.emplace(limit + kClientBytes);
#endif
  const auto server = Start({"--memory", std::to_string(limit)});
  EXPECT_EQ(server->Metric("hearth_models_loaded"), 0);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(AllOf(*server, kStories), stories);
    EXPECT_EQ(AllOf(*server, kRandom), random);
  }
  EXPECT_EQ(server->Metric("hearth_model_loads_total"), 4);
  EXPECT_EQ(server->Metric("hearth_model_unloads_total"), 3);
  // Both at a time, from several clients.
  std::vector<std::vector<std::string>> texts(4);
  std::atomic<int> running{4};
  std::vector<std::thread> clients;
  for (size_t i = 0; i < texts.size(); ++i) {
    clients.emplace_back([&, i] {
      texts[i] = AllOf(*server, i % 2 == 0 ? kStories : kRandom);
      --running;
    });
  }
  uint64_t most_promised = 0, most_resident = 0;
  while (running > 0) {
    most_promised = std::max(most_promised, Promised(*server));
    most_resident = std::max(most_resident, static_cast<uint64_t>(server->ResidentBytes()));
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], i % 2 == 0 ? stories : random);
  EXPECT_LE(most_promised, limit);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(most_resident, limit);
#endif
  EXPECT_EQ(server->Metric("hearth_model_failed_loads_total"), 0);
  EXPECT_EQ(server->Metric("hearth_memory_limit_bytes"), static_cast<double>(limit));
  Stop(*server);
}

TEST_F(ServeModelsTest, TheFolderIsLookedAtAgain) {
  const auto server = Start({"--memory", "2G"}, kStories);
  HttpClient client = server->Connect();
  EXPECT_EQ(server->Metric("hearth_models_loaded"), 1) << "MODEL is there from the start";
  const json unnamed = client.Post("/v1/chat/completions", Chat("Tell me a story.")).Json();
  EXPECT_EQ(unnamed["model"], kStories);
  EXPECT_EQ(client.Post("/v1/completions", Request("late", 0)).status, 404);
  fs::copy_file(Path(kRandom), Path("late"));
  EXPECT_EQ(Complete(*server, "late", 1), Complete(*server, kRandom, 1));
  EXPECT_EQ(client.Get("/v1/models").Json()["data"].size(), 3u);
  // Another model under the same name.
  fs::copy_file(Stories(), Path("new"));
  fs::rename(Path("new"), Path("late"));
  EXPECT_EQ(Complete(*server, "late", 1), Complete(*server, kStories, 1));
  // Half of one.
  fs::copy_file(Stories(), Path("half"));
  fs::resize_file(Path("half"), fs::file_size(Stories()) / 2);
  const HttpResponse half = client.Post("/v1/completions", Request("half", 0));
  EXPECT_EQ(half.status, 400);
  EXPECT_THAT(half.body, HasSubstr("the model 'half' cannot be loaded"));
  fs::remove(Path("late"));
  EXPECT_EQ(client.Post("/v1/completions", Request("late", 0)).Json()["error"]["code"],
            "model_not_found");
  EXPECT_EQ(Complete(*server, kStories, 2), AnswersAlone(kStories)[2]) << "the others go on";
  Stop(*server);
}

TEST_F(ServeModelsTest, WhatFitsNotEvenAloneIsRefusedWithNumbers) {
  MakeModel(folder_.Path("large.gguf"),
            R"({"arch": "llama", "hidden_size": 1024, "intermediate_size": 64, "num_layers": 16,
                "num_heads": 16, "num_kv_heads": 16, "head_dim": 64, "vocab_size": 8000})",
            DType::kQ8_0);
  const auto server = Start({"--memory", std::to_string(LimitForOne())});
  Complete(*server, kStories, 0);
  const HttpResponse refused = server->Connect().Post("/v1/completions", Request("large", 0));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("does not fit into"));
  EXPECT_THAT(refused.body, HasSubstr("the smallest that can is"));
  EXPECT_EQ(server->Metric("hearth_models_loaded"), 1) << "nobody had to leave for it";
  Stop(*server);
}

TEST_F(ServeModelsTest, AStopEndsThoseThatWait) {
  const auto server = Start({"--memory", std::to_string(LimitForOne()), "--grace", "1", "--isa",
                             "scalar", "--queue", "1"});
  json endless = Request(kRandom, 0);
  endless["max_tokens"] = 250;
  endless["n"] = 2;
  HttpClient works = server->Connect(), waits = server->Connect();
  works.SendPost("/v1/completions", endless);
  EXPECT_TRUE(server->WaitFor("hearth_models_loaded", 1));
  {
    HttpClient leaves = server->Connect();
    leaves.SendPost("/v1/completions", Request(kStories, 0));
    EXPECT_TRUE(server->WaitFor("hearth_models_waiting", 1));
    EXPECT_EQ(server->Connect().Post("/v1/completions", Request(kStories, 1)).status, 429);
  }
  EXPECT_TRUE(server->WaitFor("hearth_models_waiting", 0)) << "its client has gone";
  waits.SendPost("/v1/completions", Request(kStories, 0));
  EXPECT_TRUE(server->WaitFor("hearth_models_waiting", 1));
  server->Signal(SIGTERM);
  EXPECT_EQ(waits.Read().status, 503);
  EXPECT_EQ(server->Wait(), 0);
}

TEST_F(ServeModelsTest, ConversationsOutliveTheirModelInMemory) {
  const TestFolder sessions("serve_models_sessions");
  const std::vector<std::string> options = {"--memory",
                                            std::to_string(LimitForOne() + (uint64_t{8} << 20)),
                                            "--session-dir", sessions.Path("kept")};
  json messages = json::array();
  // Says something and takes the answer into the conversation; returns what was there already.
  const auto say = [&](const ServerProcess& server, const std::string& text) {
    messages.push_back({{"role", "user"}, {"content", text}});
    const json answer =
        server.Connect()
            .Post("/v1/chat/completions",
                  {{"model", kStories}, {"messages", messages}, {"max_tokens", 60}, {"seed", 5}})
            .Json();
    EXPECT_TRUE(answer.contains("choices")) << answer;
    messages.push_back(answer["choices"][0]["message"]);
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  {
    const auto server = Start(options);
    EXPECT_EQ(say(*server, "Tell me a story about a fox."), 0);
    Complete(*server, kRandom, 0);
    EXPECT_EQ(server->Metric("hearth_models_loaded"), 1);
    EXPECT_GT(say(*server, "What did the fox find?"), 60) << "saved when its model was unloaded";
    Stop(*server);
  }
  const auto server = Start(options);
  EXPECT_GT(say(*server, "And then?"), 60) << "saved when the server stopped";
  Stop(*server);
}

TEST_F(ServeModelsTest, AModelAtRestIsUnloadedWhereThatIsAskedFor) {
  const auto server = Start({"--memory", "2G", "--unload-after", "1"}, kRandom);
  EXPECT_TRUE(server->WaitFor("hearth_models_loaded", 0));
  EXPECT_EQ(Complete(*server, "", 0), Complete(*server, kRandom, 0)) << "MODEL is the default";
  Stop(*server);
}

TEST_F(ServeModelsTest, OptionsOfOneModelAreRefused) {
  const std::string folder = folder_.Path("");
  const auto refusal = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "serve");
    const ProgramResult result = RunHearth(more);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  };
  for (const char* name : {"--plan", "--lora", "--device", "--name", "--activation"}) {
    const std::string value = std::string(name) == "--activation" ? "relu"
                              : std::string(name) == "--device"   ? "auto"
                                                                  : "x";
    EXPECT_THAT(refusal({"--models", folder, name, value}),
                HasSubstr(std::string(name) + " is about one model"));
  }
  EXPECT_THAT(refusal({Path(kStories), "--unload-after", "5"}),
              HasSubstr("--unload-after has no effect without --models"));
  EXPECT_THAT(refusal({}), HasSubstr("say which MODEL, or a folder of --models"));
  const ProgramResult elsewhere = RunHearth({"serve", "gpt-4", "--models", folder});
  EXPECT_EQ(elsewhere.exit_code, 1);
  EXPECT_THAT(elsewhere.err, HasSubstr("there is no model 'gpt-4' in"));
  EXPECT_THAT(elsewhere.err, HasSubstr("which has hearth-stories-5m, random"));
  const ProgramResult missing = RunHearth({"serve", "--models", folder + "/none"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("there is no such folder"));
  const ProgramResult small = RunHearth({"serve", "--models", folder, "--memory", "8M"});
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_THAT(small.err, HasSubstr("a server of several models takes"));
}

}  // namespace
}  // namespace hearth
