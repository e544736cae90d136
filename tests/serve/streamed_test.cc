// `hearth serve` with a model larger than its memory: many together, and a file that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "json_schema.h"
#include "prepare/pack/test_pack_models.h"
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
    const ProgramResult refused =
        RunHearth({"serve", Model(), "--memory", "1M", "--ctx", "256", "--session-dir", "none"});
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

// Of more than are computed together, predictors and readers are asked about some at a time.
TEST_F(ServeStreamedTest, FortyTogetherAreAsEachAlone) {
  std::vector<std::string> options = Options();
  *std::find(options.begin(), options.end(), "12") = "40";
  options[1] = std::to_string(std::stoull(options[1]) + (uint64_t{8} << 20));  // of their own
  ServerProcess server(Model(), options);
  const auto answer = [&](size_t i) {
    const json told =
        server.Connect().Post("/v1/completions", Prompt(10 + static_cast<int>(i))).Json();
    return told.value("choices", json::array({{{"text", told.dump()}}}))[0]["text"];
  };
  std::vector<std::string> alone, together(40);
  for (size_t i = 0; i < 40; ++i) alone.push_back(answer(i));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 40; ++i) threads.emplace_back([&, i] { together[i] = answer(i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
  EXPECT_GT(server.Metric("hearth_decode_read_bytes_total"), 0);
}

// The picture of a pass; it comes a moment after the answer.
json Picture(HttpClient& client) {
  json picture;
  for (int i = 0; i < 1000; ++i) {
    picture = client.Get("/v1/hearth/neurons").Json();
    if (!picture["last_pass"].is_null()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_THAT(SchemaComplaints(Schema("neurons"), picture), testing::IsEmpty());
  return picture;
}

// Of base64, 16 bits each.
std::vector<int> Counts(const json& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<int> bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text.get<std::string>()) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<int>(bits >> count & 255u));
  }
  std::vector<int> counts;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) counts.push_back(bytes[i] + 256 * bytes[i + 1]);
  return counts;
}

TEST_F(ServeStreamedTest, ThePictureOfTheLastTokenIsWhatItAskedFor) {
  ServerProcess server(Model(), Options());
  HttpClient client = server.Connect();
  client.Post("/v1/completions", Prompt(10));
  json picture = client.Get("/v1/hearth/neurons").Json();
  EXPECT_THAT(SchemaComplaints(Schema("neurons"), picture), testing::IsEmpty());
  EXPECT_EQ(picture["shape"]["layers"], 4);
  EXPECT_EQ(picture["shape"]["neurons"], 6144);
  EXPECT_TRUE(picture["last_pass"].is_null()) << "nobody looked";
  EXPECT_TRUE(server.WaitFor("hearth_generated_tokens_total", 11));  // they come after the answer
  const json before = client.Get("/v1/hearth/stats").Json()["io"];
  json one = Prompt(11);
  one["max_tokens"] = 2;  // the first comes from the prompt
  client.Post("/v1/completions", one);
  picture = Picture(client);
  const json after = client.Get("/v1/hearth/stats").Json()["io"];
  const json& last = picture["last_pass"];
  ASSERT_FALSE(last.is_null());
  EXPECT_EQ(last["tokens"], 1);
  for (const char* place : {"pinned", "cached", "read"}) {
    const std::vector<int> counts = Counts(last[place]);
    EXPECT_EQ(counts.size(), 4u * 128u);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0),
              after[place].get<int>() - before[place].get<int>())
        << place;
    const int pinned_columns = picture["shape"]["pinned_neurons"].get<int>() / 48;
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_LE(counts[i], 48);
      const bool is_pinned = place == std::string("pinned");
      const int column = static_cast<int>(i % 128);
      const bool is_elsewhere = is_pinned ? column > pinned_columns : column < pinned_columns;
      EXPECT_TRUE(!is_elsewhere || counts[i] == 0) << place << " " << i;
    }
  }
}

TEST_F(ServeStreamedTest, WhereAllNeuronsAreComputedThePictureIsFull) {
  std::vector<std::string> options = Options();
  options.back() = "dense";
  ServerProcess server(Model(), options);
  HttpClient client = server.Connect();
  client.Get("/v1/hearth/neurons");
  client.Post("/v1/completions", Prompt(11));
  const json picture = Picture(client);
  ASSERT_EQ(picture["shape"]["is_streamed"], true);
  const int pinned = picture["shape"]["pinned_neurons"];
  EXPECT_GT(pinned, 0);
  const auto sum = [&](const char* place) {
    const std::vector<int> counts = Counts(picture["last_pass"][place]);
    return std::accumulate(counts.begin(), counts.end(), 0);
  };
  EXPECT_EQ(sum("pinned"), 4 * pinned);
  EXPECT_GT(sum("cached"), 0);
  EXPECT_GT(sum("read"), 0);
  EXPECT_EQ(sum("cached") + sum("read"), 4 * (6144 - pinned));
}

TEST_F(ServeStreamedTest, OfAModelInMemoryThePictureShowsWhoFires) {
  for (const char* mode : {"gated", "predicted"}) {
    ServerProcess server(Model(),
                         {"--ctx", "256", "--threads", "2", "--parallel", "12", "--mode", mode});
    HttpClient client = server.Connect();
    client.Get("/v1/hearth/neurons");
    client.Post("/v1/completions", Prompt(11));
    const json picture = Picture(client);
    EXPECT_FALSE(picture["shape"]["is_streamed"]);
    EXPECT_EQ(picture["shape"]["pinned_neurons"], 6144);
    const std::vector<int> fired = Counts(picture["last_pass"]["pinned"]);
    const int sum = std::accumulate(fired.begin(), fired.end(), 0);
    EXPECT_GT(sum, 0);
    EXPECT_LT(sum, 4 * 6144 / 2) << "few fire";
    // So many that they are computed together.
    json many = Prompt(12);
    many["n"] = 12;
    client.Post("/v1/completions", many);
    json together = Picture(client);
    for (int i = 0; i < 1000 && together["last_pass"]["tokens"] == 1; ++i) {
      together = Picture(client);
    }
    EXPECT_GE(together["last_pass"]["tokens"], 8);
    const std::vector<int> all = Counts(together["last_pass"]["pinned"]);
    const int tokens = together["last_pass"]["tokens"];
    EXPECT_GT(std::accumulate(all.begin(), all.end(), 0), sum);
    for (const int count : all) EXPECT_LE(count, 48 * tokens);
  }
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
  const HttpResponse begun = server.Connect().Post("/v1/completions", stream);
  EXPECT_EQ(begun.status, 200) << "its head was sent before the model was read";
  EXPECT_THAT(begun.body, ::testing::HasSubstr("\"code\":\"model_fault\""));
  const HttpResponse health = server.Connect().Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.Json()["status"], "fault");
  EXPECT_EQ(server.Metric("hearth_model_fault"), 1);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << "the process is unharmed";
}

}  // namespace
}  // namespace hearth
