// Plans that put neurons on a device, from the command line: made, saved, and obeyed to the byte
// (P1 §6).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "base/test_folder.h"
#include "json_schema.h"
#include "prepare/pack/test_pack_models.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/synth.h"
#include "program.h"
#include "server_process.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNeurons = 6144;  // of an FFN of the model
constexpr int64_t kLayers = 4;
// Three rows of 512 columns in Q4_0.
constexpr int64_t kNeuronBytes = 3 * 288;

class DevicePlanCommandTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("device_plan_command");
    setenv("XDG_CACHE_HOME", folder_->Path("cache").c_str(), 1);
    SynthesizeSparseModel(Model());
    const ProgramResult doctor = RunHearth({"doctor", "--quick", "--dir", folder_->Path("")});
    ASSERT_EQ(doctor.exit_code, 0) << doctor.err;
    const json devices = json::parse(RunHearth({"devices", "--limits", "--json"}).out)["devices"];
    has_device_ = !devices.empty();
    // What compiling its programs takes would be a part of the first plan.
    if (has_device_) Plan("16M", {"--memory", "4G"});
  }
  static void TearDownTestSuite() {
    delete folder_;
    unsetenv("XDG_CACHE_HOME");
  }
  void SetUp() override {
    if (has_device_) return;
    if (std::getenv("CI") != nullptr) FAIL() << "no device in CI";
    GTEST_SKIP() << "there is no device: install pocl-opencl-icd";
  }

  static std::string Model() { return folder_->Path("model.gguf"); }
  static std::string PlanPath() { return folder_->Path("plan.json"); }

  // A fast card beside a slow processor.
  static ProgramResult Plan(const std::string& device_memory, std::vector<std::string> more,
                            const char* latency_us = "1") {
    std::vector<std::string> arguments = {"plan",
                                          Model(),
                                          "--device-memory",
                                          device_memory,
                                          "--device-bandwidth",
                                          "1000",
                                          "--link-bandwidth",
                                          "60",
                                          "--link-latency",
                                          latency_us,
                                          "--memory-bandwidth",
                                          "10",
                                          "--mode",
                                          "predicted",
                                          "--ctx",
                                          "128",
                                          "--tokens",
                                          "64",
                                          "-o",
                                          PlanPath()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }
  static json Planned(const std::string& device_memory, std::vector<std::string> more) {
    more.push_back("--json");
    const ProgramResult result = Plan(device_memory, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const json document = json::parse(result.out, nullptr, false);
    EXPECT_THAT(SchemaComplaints(Schema("plan"), document), IsEmpty());
    return document;
  }
  static std::vector<int64_t> DeviceNeurons(const json& plan) {
    std::vector<int64_t> neurons;
    for (const json& layer : plan["layers"]) {
      EXPECT_EQ(layer["ranges"]["device"][0], 0);
      EXPECT_EQ(layer["ranges"]["device"][1], layer["ranges"]["pinned"][0]);
      EXPECT_EQ(layer["ranges"]["flash"][1], kNeurons);
      neurons.push_back(layer["ranges"]["device"][1].get<int64_t>());
    }
    return neurons;
  }
  // What lies on the device is what the plan says.
  static void ExpectObeyed(const json& plan, const json& device) {
    EXPECT_EQ(device["layer_neurons"], json(DeviceNeurons(plan)));
    EXPECT_EQ(device["ledger"], plan["device"]["ledger"]);
    EXPECT_EQ(device["budget_bytes"], plan["device"]["memory_bytes"]);
    EXPECT_EQ(device["neurons_of_ffn"], kNeurons);
  }
  static uint64_t LedgerBytes(const json& plan) {
    uint64_t sum = 0;
    for (const auto& [name, bytes] : plan["ledger"].items()) sum += bytes.get<uint64_t>();
    return sum;
  }

  inline static TestFolder* folder_ = nullptr;
  inline static bool has_device_ = false;
};

TEST_F(DevicePlanCommandTest, CommandsPlaceExactlyThat) {
  const json plan = Planned("22M", {"--memory", "4G"});
  EXPECT_EQ(plan["io_strategy"], "none");
  const std::vector<int64_t> neurons = DeviceNeurons(plan);
  ASSERT_EQ(std::ssize(neurons), kLayers);
  int64_t all = 0;
  for (const int64_t n : neurons) all += n;
  EXPECT_GT(all, kLayers * kNeurons / 4);
  EXPECT_LT(all, kLayers * kNeurons);
  const int64_t bytes = plan["device"]["ledger"]["neurons"].get<int64_t>();
  EXPECT_EQ(bytes, all * kNeuronBytes);
  EXPECT_LE(bytes + plan["device"]["ledger"]["scratch"].get<int64_t>(), 22 << 20);
  EXPECT_GT(plan["time_ms"]["device"], 0);

  const std::vector<std::string> obey = {"--plan", PlanPath(), "--device", "0"};
  std::vector<std::string> bench = {"bench", Model(),  "--prefill", "9",     "--decode",
                                    "8",     "--reps", "1",         "--json"};
  bench.insert(bench.end(), obey.begin(), obey.end());
  const ProgramResult measured = RunHearth(bench);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const json of_bench = json::parse(measured.out)["memory"]["device"];
  ExpectObeyed(plan, of_bench);
  EXPECT_GT(of_bench["computed"]["device"], 0);
  EXPECT_GT(of_bench["computed"]["processor"], 0);
  EXPECT_EQ(of_bench["matrices"]["layers"][0]["predictor"], true);
  EXPECT_GT(of_bench["matrices"]["predicted"], 0);
  std::vector<std::string> run = {"run", Model(), "-p", "", "-n", "4", "--json"};
  run.insert(run.end(), obey.begin(), obey.end());
  const ProgramResult ran = RunHearth(run);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  ExpectObeyed(plan, json::parse(ran.out)["memory"]["device"]);
  const ServerProcess server(Model(), obey);
  const json answer =
      server.Connect()
          .Post("/v1/completions",
                {{"prompt", {10, 100, 200, 300}}, {"max_tokens", 4}, {"temperature", 0}})
          .Json();
  EXPECT_TRUE(answer.contains("choices")) << answer;
}

// The host's memory is too small for the rest, which is read from flash: three tiers in one plan.
TEST_F(DevicePlanCommandTest, ThreeTiers) {
  const json whole = Planned("16M", {"--memory", "4G"});
  // What the program takes differs by some MiB from run to run.
  json plan;
  for (uint64_t less = 6; less < 14 && !plan["stream"].is_object(); ++less) {
    plan = Planned("16M", {"--memory", std::to_string((LedgerBytes(whole) >> 20) - less) + "M"});
  }
  ASSERT_TRUE(plan["stream"].is_object()) << plan;
  const std::vector<int64_t> neurons = DeviceNeurons(plan);
  EXPECT_THAT(neurons, ::testing::Each(neurons[0])) << "a layer like the other";
  EXPECT_GT(neurons[0], 0);
  EXPECT_EQ(neurons[0] % 64, 0);
  EXPECT_EQ(plan["layers"][0]["ranges"]["pinned"][1],
            neurons[0] + plan["stream"]["pinned_neurons"].get<int64_t>());
  EXPECT_LE(LedgerBytes(plan), plan["budget_bytes"]);
  const ProgramResult measured =
      RunHearth({"bench", Model(), "--prefill", "9", "--decode", "8", "--reps", "1", "--json",
                 "--plan", PlanPath(), "--device", "0"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const json document = json::parse(measured.out);
  ExpectObeyed(plan, document["memory"]["device"]);
  EXPECT_GT(document["io"]["bytes_read_per_token"], 0);
}

TEST_F(DevicePlanCommandTest, WhatDoesNotFitTogetherIsRefused) {
  ExpectRefused(Plan("1M", {"--memory", "4G"}), 1, "--device-memory: scratch");
  ExpectRefused(Plan("16M", {"--memory", "4G"}, "1e6"), 1, "P1 constraint 4");
  ExpectRefused(Plan("16M", {"--memory", "4G", "--dense", "device"}), 2, "--dense device");
  ASSERT_EQ(Plan("16M", {"--memory", "4G"}).exit_code, 0);
  const auto run = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", Model(), "-p", "", "-n", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  };
  const std::string path = PlanPath();
  ExpectRefused(run({"--plan", path}), 2, "say on which with --device");
  ExpectRefused(run({"--plan", path, "--device", "0", "--device-memory", "8M"}), 2,
                "--device-memory has no effect with --plan");
  // A plan that was changed by hand.
  json document = json::parse(ReadWholeFile(path));
  document["device"]["ledger"]["neurons"] =
      document["device"]["ledger"]["neurons"].get<int64_t>() + 1;
  const std::string other = folder_->Path("other.json");
  std::ofstream(other) << document.dump();
  ExpectRefused(run({"--plan", other, "--device", "0"}), 1, "device.ledger");
  document = json::parse(ReadWholeFile(path));
  document["device"]["memory_bytes"] = 1 << 20;
  std::ofstream(other) << document.dump();
  ExpectRefused(run({"--plan", other, "--device", "0"}), 1, "at most device.memory_bytes");
  // One without a device.
  ASSERT_EQ(RunHearth({"plan", Model(), "--memory", "4G", "--mode", "predicted", "--ctx", "128",
                       "--tokens", "64", "-o", other})
                .exit_code,
            0);
  ExpectRefused(run({"--plan", other, "--device", "0"}), 2, "this plan uses none");
}

// The same number of neurons of each expert of a layer; the rest in memory, and on flash.
TEST_F(DevicePlanCommandTest, PackedMixturesArePlannedAndObeyed) {
  constexpr int64_t kExperts = 4, kOfExpert = 2048, kMixtureLayers = 3;
  constexpr int64_t kBytes = 3 * 160;  // three rows of 256 columns, each from a multiple of 32
  const std::string model = folder_->Path("packed-mixture.gguf");
  SynthesizeModel(
      ParseShape(R"({"arch": "mixtral", "hidden_size": 256, "num_layers": 3, "num_heads": 4,
                     "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000, "activation": "relu",
                     "num_experts": 4, "num_experts_per_token": 2, "intermediate_size": 2048})",
                 "mixture"),
      {.quant = DType::kQ4_0, .threads = 2, .planted = PlantedOptions(), .packed = true}, model);
  uint64_t whole = 0;
  for (const bool is_streamed : {false, true}) {
    const std::string memory = is_streamed ? std::to_string((whole >> 20) - 5) + "M" : "4G";
    const ProgramResult planned = RunHearth({"plan",
                                             model,
                                             "-o",
                                             PlanPath(),
                                             "--ctx",
                                             "128",
                                             "--tokens",
                                             "64",
                                             "--mode",
                                             "gated",
                                             "--memory",
                                             memory,
                                             "--device-memory",
                                             "8M",
                                             "--device-bandwidth",
                                             "500",
                                             "--link-bandwidth",
                                             "60",
                                             "--link-latency",
                                             "0.1",
                                             "--memory-bandwidth",
                                             "10",
                                             "--json"});
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    const json plan = json::parse(planned.out);
    EXPECT_THAT(SchemaComplaints(Schema("plan"), plan), IsEmpty());
    EXPECT_EQ(plan["stream"].is_object(), is_streamed);
    if (!is_streamed) whole = LedgerBytes(plan);
    int64_t there = 0;
    for (const json& layer : plan["layers"]) {
      there += layer["ranges"]["device"][1].get<int64_t>();
      EXPECT_EQ(layer["ranges"]["flash"][1], kOfExpert);
    }
    EXPECT_GT(there, 0);
    EXPECT_LT(there, kMixtureLayers * kOfExpert);
    EXPECT_EQ(plan["device"]["ledger"]["neurons"], kExperts * there * kBytes);
    const ProgramResult measured =
        RunHearth({"bench", model, "--prefill", "9", "--decode", "8", "--reps", "1", "--json",
                   "--plan", PlanPath(), "--device", "0"});
    ASSERT_EQ(measured.exit_code, 0) << measured.err;
    const json device = json::parse(measured.out)["memory"]["device"];
    EXPECT_EQ(device["ledger"], plan["device"]["ledger"]);
    EXPECT_EQ(device["neurons_of_ffn"], kOfExpert);
    EXPECT_GT(device["computed"]["device"], 0);
    EXPECT_GT(device["computed"]["processor"], 0);
  }
}

// A mixture that is not packed: what every token needs and the hottest experts are there.
TEST_F(DevicePlanCommandTest, MatricesArePlannedAndObeyed) {
  const std::string model = folder_->Path("mixture.gguf");
  SynthesizeModel(ParseShape(R"({"arch": "qwen3moe", "hidden_size": 256, "num_experts": 16,
                                 "intermediate_size": 512, "num_layers": 4, "num_heads": 4,
                                 "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600,
                                 "num_experts_per_token": 2})",
                             "mixture"),
                  {.quant = DType::kQ4_0, .threads = 2}, model);
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"plan",
                                          model,
                                          "-o",
                                          PlanPath(),
                                          "--ctx",
                                          "256",
                                          "--device-memory",
                                          "6M",
                                          "--device-bandwidth",
                                          "500",
                                          "--link-bandwidth",
                                          "16",
                                          "--link-latency",
                                          "0.1",
                                          "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  };
  const ProgramResult planned = plan({"--memory", "4G"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const json document = json::parse(planned.out);
  EXPECT_THAT(SchemaComplaints(Schema("plan"), document), IsEmpty());
  const json& layers = document["device"]["matrices"]["layers"];
  size_t experts = 0;
  for (const json& layer : layers) {
    EXPECT_EQ(layer["attention"], true);
    experts += layer["experts"].size();
  }
  EXPECT_GT(experts, 0);
  EXPECT_LT(experts, 64);
  const ProgramResult run = RunHearth({"run", model, "--raw", "-p", "Once", "-n", "3", "--temp",
                                       "0", "--plan", PlanPath(), "--device", "0", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json device = json::parse(run.out)["memory"]["device"];
  EXPECT_EQ(device["matrices"]["layers"], layers);
  EXPECT_EQ(device["ledger"], document["device"]["ledger"]);
  // Four of each layer's attention and the output for each token, and three of each expert there.
  EXPECT_GT(device["matrices"]["products"].get<int64_t>(), 0);
  ExpectRefused(RunHearth({"run", model, "-p", "Once", "--plan", PlanPath()}), 2,
                "say on which with --device");
  ExpectRefused(RunHearth({"run", Model(), "-p", "Once", "--plan", PlanPath(), "--device", "0"}), 1,
                "model_hash");
  ExpectRefused(plan({"--memory", "4G", "--profile", Model()}), 2, "--profile has no effect");
}

}  // namespace
}  // namespace hearth
