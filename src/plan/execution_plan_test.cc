#include "plan/execution_plan.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace hearth {
namespace {

ExecutionPlan SomePlan() {
  ExecutionPlan plan;
  plan.model_hash = "0123456789abcdef";
  plan.hardware_hash = "fedcba9876543210";
  plan.decode_tok_s = 12.5;
  plan.prefill_tok_s = 40;
  plan.bound = "flash";
  plan.time = {20, 5, 30, 35, 80};
  plan.miss_rate = 0.035;
  plan.bytes_read_per_token = 9000000;
  plan.budget_bytes = uint64_t{3} << 30;
  plan.ledger = {{"weights", 1000}, {"neurons", 2000}};
  plan.compute_cores = {0, 1};
  plan.io_strategy = "whole";
  plan.io_backend = "io_uring";
  plan.mode = "predicted";
  plan.num_layers = 3;
  plan.neurons = 1024;
  plan.cache_policy = "layer-lfu";
  plan.stream = {.pinned_neurons = 256,
                 .cache_slots = 300,
                 .range_neurons = 128,
                 .range_buffers = 3,
                 .queue_depth = 32,
                 .clusters = {24, 96}};
  plan.kv_codec = "f16";
  plan.context = 512;
  return plan;
}

TEST(ExecutionPlanTest, ComesBackFromJson) {
  for (const bool streams : {true, false}) {
    ExecutionPlan plan = SomePlan();
    if (!streams) {
      plan.stream.reset();
      plan.io_strategy = "none";
      plan.io_backend.clear();
    }
    const auto document = PlanJson(plan);
    const ExecutionPlan back = PlanFromJson(nlohmann::json::parse(document.dump()), "plan");
    EXPECT_EQ(PlanJson(back), document);
    EXPECT_EQ(back.threads(), 2);
    EXPECT_EQ(back.stream.has_value(), streams);
    const auto& ranges = document["layers"][2]["ranges"];
    EXPECT_EQ(ranges["pinned"], nlohmann::ordered_json({0, streams ? 256 : 1024}));
    EXPECT_EQ(ranges["flash"], nlohmann::ordered_json({streams ? 256 : 1024, 1024}));
  }
}

TEST(ExecutionPlanTest, CarriesAProcessorThatReads) {
  ExecutionPlan plan = SomePlan();
  plan.compute_cores = {0, 3};
  plan.io_core = 1;
  nlohmann::json document = nlohmann::json::parse(PlanJson(plan).dump());
  EXPECT_EQ(document["cores"], nlohmann::json::parse(R"({"compute": [0, 3], "io": 1})"));
  const ExecutionPlan back = PlanFromJson(document, "plan");
  EXPECT_EQ(back.io_core, 1);
  EXPECT_EQ(back.threads(), 3);
  EXPECT_EQ(back.all_cores(), (std::vector<int>{0, 1, 3}));
  for (const nlohmann::json& wrong : {nlohmann::json(3), nlohmann::json(-1), nlohmann::json("1")}) {
    document["cores"]["io"] = wrong;
    EXPECT_THROW(PlanFromJson(document, "plan"), Error) << wrong;
  }
}

TEST(ExecutionPlanTest, CarriesTheSizeOfClusters) {
  nlohmann::json document = nlohmann::json::parse(PlanJson(SomePlan()).dump());
  EXPECT_EQ(document["stream"]["cluster_neurons"], nlohmann::json({24, 96}));
  EXPECT_EQ(PlanFromJson(document, "plan").stream->clusters, (ClusterSizes{24, 96}));
  document["stream"].erase("cluster_neurons");
  EXPECT_EQ(PlanFromJson(document, "plan").stream->clusters, ClusterSizes());
  for (const nlohmann::json& wrong :
       {nlohmann::json({0, 96}), {97, 96}, {16, 257}, {16}, nlohmann::json("16")}) {
    document["stream"]["cluster_neurons"] = wrong;
    EXPECT_THROW(PlanFromJson(document, "plan"), Error) << wrong;
  }
}

TEST(ExecutionPlanTest, NeuronsOnADeviceComeBackFromJson) {
  for (const bool streams : {true, false}) {
    ExecutionPlan plan = SomePlan();
    plan.bound = "device";
    plan.time.device_ms = 7;
    plan.device = {.memory_bytes = 1 << 20,
                   .ledger = {{"neurons", 3000}, {"scratch", 400}},
                   .layer_neurons = {64, 64, 64}};
    if (!streams) {
      plan.stream.reset();
      plan.io_strategy = "none";
      plan.io_backend.clear();
      plan.device->layer_neurons = {0, 1024, 320};
    }
    const auto document = PlanJson(plan);
    const ExecutionPlan back = PlanFromJson(nlohmann::json::parse(document.dump()), "plan");
    EXPECT_EQ(PlanJson(back), document);
    ASSERT_TRUE(back.device);
    EXPECT_EQ(back.device->layer_neurons, plan.device->layer_neurons);
    EXPECT_EQ(back.device->ledger, plan.device->ledger);
    const auto& ranges = document["layers"][2]["ranges"];
    EXPECT_EQ(ranges["device"], nlohmann::ordered_json({0, streams ? 64 : 320}));
    EXPECT_EQ(ranges["pinned"],
              streams ? nlohmann::ordered_json({64, 320}) : nlohmann::ordered_json({320, 1024}));
  }
}

TEST(ExecutionPlanTest, MatricesOnADeviceComeBackFromJson) {
  ExecutionPlan plan = SomePlan();
  plan.stream.reset();
  plan.io_strategy = "experts";
  plan.bound = "device";
  plan.device = {.memory_bytes = 1 << 20,
                 .ledger = {{"matrices", 3000}, {"scratch", 400}, {"uploads", 50}}};
  plan.device->matrices = {
      .layers = {{.attention = true, .experts = {0, 3, 7}}, {.shared = true}, {}},
      .output = true,
      .upload_tokens = 64};
  const auto document = PlanJson(plan);
  nlohmann::json text = nlohmann::json::parse(document.dump());
  const ExecutionPlan back = PlanFromJson(text, "plan");
  EXPECT_EQ(PlanJson(back), document);
  ASSERT_TRUE(back.device);
  EXPECT_EQ(back.device->matrices, plan.device->matrices);
  EXPECT_EQ(back.device->ledger, plan.device->ledger);
  text["device"]["matrices"]["layers"].erase(2);
  EXPECT_THROW(PlanFromJson(text, "plan"), Error);
  text["device"]["matrices"]["layers"] = nlohmann::json::array();
  text["device"]["matrices"]["output"] = false;
  text["device"]["matrices"]["upload_tokens"] = 0;
  EXPECT_THROW(PlanFromJson(text, "plan"), Error);
}

// As plans were written before there were devices.
TEST(ExecutionPlanTest, APlanNeedNotSpeakOfDevices) {
  nlohmann::json document = nlohmann::json::parse(PlanJson(SomePlan()).dump());
  document.erase("device");
  document["time_ms"].erase("device");
  EXPECT_FALSE(PlanFromJson(document, "plan").device);
}

struct BadPlan {
  const char* name;
  std::function<void(nlohmann::json&)> change;
  ErrorCode code;
  const char* says;
};

TEST(ExecutionPlanTest, RefusesByName) {
  const BadPlan kBad[] = {
      {"no bound", [](auto& j) { j.erase("bound"); }, ErrorCode::kCorrupt, "bound is missing"},
      {"hash", [](auto& j) { j["model_hash"] = "x"; }, ErrorCode::kCorrupt, "model_hash"},
      {"negative", [](auto& j) { j["decode_tok_s"] = -1; }, ErrorCode::kCorrupt, "decode_tok_s"},
      {"no cores", [](auto& j) { j["cores"]["compute"] = nlohmann::json::array(); },
       ErrorCode::kCorrupt, "cores.compute"},
      {"core", [](auto& j) { j["cores"]["compute"] = {-1}; }, ErrorCode::kCorrupt, "cores.compute"},
      {"io core", [](auto& j) { j["cores"]["io"] = 1; }, ErrorCode::kCorrupt, "cores.io"},
      {"strategy", [](auto& j) { j["io_strategy"] = "psychic"; }, ErrorCode::kCorrupt,
       "io_strategy"},
      {"no layers", [](auto& j) { j["layers"] = nlohmann::json::array(); }, ErrorCode::kCorrupt,
       "layers"},
      {"other mode", [](auto& j) { j["layers"][1]["mode"] = "dense"; }, ErrorCode::kUnsupported,
       "differ"},
      {"no device",
       [](auto& j) {
         j["layers"][0]["ranges"] = {
             {"device", {0, 64}}, {"pinned", {64, 320}}, {"flash", {320, 1024}}};
       },
       ErrorCode::kCorrupt, "no `device`"},
      {"an idle device",
       [](auto& j) {
         j["device"] = {{"memory_bytes", 4096}, {"ledger", {{"neurons", 1}, {"scratch", 2}}}};
       },
       ErrorCode::kCorrupt, "no layer has neurons"},
      {"a ledger of a device",
       [](auto& j) {
         j["device"] = {{"memory_bytes", 1}, {"ledger", {}}};
       },
       ErrorCode::kCorrupt, "device.ledger"},
      {"layers that stream differently",
       [](auto& j) {
         j["device"] = {{"memory_bytes", 4096}, {"ledger", {{"neurons", 1}, {"scratch", 2}}}};
         j["layers"][0]["ranges"] = {
             {"device", {0, 64}}, {"pinned", {64, 320}}, {"flash", {320, 1024}}};
       },
       ErrorCode::kUnsupported, "where the rest is streamed"},
      {"gap",
       [](auto& j) {
         j["layers"][0]["ranges"]["pinned"] = {1, 256};
       },
       ErrorCode::kCorrupt, "pinned"},
      {"pinned",
       [](auto& j) {
         j["layers"][0]["ranges"]["pinned"] = {0, 128};
         j["layers"][0]["ranges"]["flash"] = {128, 1024};
       },
       ErrorCode::kCorrupt, "pinned"},
      {"slots", [](auto& j) { j["stream"]["cache_slots"] = 1e30; }, ErrorCode::kCorrupt,
       "stream.cache_slots"},
      {"ledger", [](auto& j) { j["ledger"]["kv"] = "much"; }, ErrorCode::kCorrupt, "ledger.kv"},
      {"no weights", [](auto& j) { j["ledger"].erase("weights"); }, ErrorCode::kCorrupt,
       "ledger.weights"},
      {"sum",
       [](auto& j) {
         j["ledger"]["kv"] = uint64_t{1} << 62;
         j["ledger"]["neurons"] = uint64_t{1} << 62;
       },
       ErrorCode::kCorrupt, "ledger.neurons"},
      {"misses", [](auto& j) { j["miss_rate"] = 1e300; }, ErrorCode::kCorrupt, "miss_rate"},
      {"policy", [](auto& j) { j["cache_policy"] = ""; }, ErrorCode::kCorrupt, "cache_policy"},
      {"backend", [](auto& j) { j["io_backend"] = nullptr; }, ErrorCode::kCorrupt, "io_backend"},
      {"kv", [](auto& j) { j["kv"]["place"] = "flash"; }, ErrorCode::kCorrupt, "kv.place"},
      {"no object", [](auto& j) { j = 7; }, ErrorCode::kCorrupt, "object"},
  };
  for (const BadPlan& bad : kBad) {
    nlohmann::json document = nlohmann::json::parse(PlanJson(SomePlan()).dump());
    bad.change(document);
    try {
      PlanFromJson(document, "my.plan");
      ADD_FAILURE() << bad.name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), bad.code) << bad.name << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(bad.says), std::string::npos)
          << bad.name << ": " << error.what();
    }
  }
}

TEST(ExecutionPlanTest, RefusesWhatItDoesNotKnow) {
  for (const char* place :
       {"", "/time_ms", "/cores", "/stream", "/layers/1", "/layers/2/ranges", "/kv"}) {
    nlohmann::json document = nlohmann::json::parse(PlanJson(SomePlan()).dump());
    document[nlohmann::json::json_pointer(place)]["surprise"] = 1;
    try {
      PlanFromJson(document, "my.plan");
      ADD_FAILURE() << place << " took it";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("surprise"), std::string::npos) << error.what();
    }
  }
}

TEST(ExecutionPlanTest, FilesThatAreNone) {
  EXPECT_THROW(ReadPlan("/nonexistent/plan"), Error);
  EXPECT_THROW(ReadPlan("/proc/self/exe"), Error);
}

}  // namespace
}  // namespace hearth
