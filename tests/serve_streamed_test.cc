// `hearth serve` with a model larger than its memory: many together, and a file that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "prepare/pack_test_models.h"
#include "program.h"
#include "server_process.h"
#include "test_budgets.h"

namespace hearth {
namespace {

using nlohmann::json;

class ServeStreamedTest : public testing::Test {
 protected:
  // As sparse as bamboo-7b, with predictors; 36 MiB of neurons.
  static void SetUpTestSuite() {
    folder_ = new TestFolder("serve_streamed");
    SynthesizeSparseModel(Model());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string Model() { return folder_->Path("model.gguf"); }

  // With half of the neurons in memory.
  static std::vector<std::string> Options() {
    const ProgramResult refused = RunHearth({"serve", Model(), "--memory", "1M", "--ctx", "256"});
    const uint64_t limit = LimitOfRefusal(refused.err) + (uint64_t{18} << 20);
    return {"--memory", std::to_string(limit), "--ctx", "256",    "--threads",
            "2",        "--parallel",          "12",    "--mode", "predicted"};
  }

  static json Prompt(int first) {
    return {{"prompt", {first, 100, 200, 300}},
            {"max_tokens", 12},
            {"temperature", 0},
            {"logit_bias", {{"1", -100}, {"2", -100}}}};
  }

  static TestFolder* folder_;
};

TestFolder* ServeStreamedTest::folder_ = nullptr;

TEST_F(ServeStreamedTest, TwelveTogetherReadOnlyWhatTheyNeed) {
  ServerProcess server(Model(), Options());
  std::vector<std::string> alone;
  for (int i = 0; i < 12; ++i) {
    const json answer = server.Connect().Post("/v1/completions", Prompt(10 + i)).Json();
    ASSERT_TRUE(answer.contains("choices")) << answer;
    alone.push_back(answer["choices"][0]["text"]);
  }
  const double prefilled =
      server.Metric("hearth_read_bytes_total") - server.Metric("hearth_decode_read_bytes_total");
  const double alone_bytes = server.Metric("hearth_decode_read_bytes_total");
  EXPECT_GT(alone_bytes, 0);
  std::vector<std::thread> threads;
  std::vector<std::string> together(alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    threads.emplace_back([&, i] {
      const json answer =
          server.Connect().Post("/v1/completions", Prompt(10 + static_cast<int>(i))).Json();
      together[i] = answer["choices"][0]["text"];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone) << "decoding lists of neurons has the bits of one token at a time";
  EXPECT_GT(prefilled, 0);
  EXPECT_LE(server.Metric("hearth_decode_read_bytes_total") - alone_bytes, alone_bytes)
      << "a neuron that several need is read once";
  EXPECT_GT(server.Metric("hearth_hit_ratio"), 0.3);
}

TEST_F(ServeStreamedTest, AFileThatChangesFailsRequestsAndIsSaid) {
  ServerProcess server(Model(), Options());
  EXPECT_EQ(server.Connect().Post("/v1/completions", Prompt(10)).status, 200);
  const auto size = std::filesystem::file_size(Model());
  std::filesystem::resize_file(Model(), size / 2);
  const HttpResponse failed = server.Connect().Post("/v1/completions", Prompt(11));
  EXPECT_EQ(failed.status, 503);
  EXPECT_EQ(failed.Json()["error"]["code"], "model_fault");
  json stream = Prompt(12);
  stream["stream"] = true;
  EXPECT_EQ(server.Connect().Post("/v1/completions", stream).status, 503);
  const HttpResponse health = server.Connect().Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.Json()["status"], "fault");
  EXPECT_EQ(server.Metric("hearth_model_fault"), 1);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << "the process is unharmed";
}

}  // namespace
}  // namespace hearth
