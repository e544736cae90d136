#include "planner/simulator/device_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/random_words.h"
#include "planner/simulator/test_simulator.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// What a changed phone is refused with; empty where it is not.
std::string Refusal(const std::function<void(json&)>& change) {
  json device = json::parse(SimDeviceJson(OnePlus12()));
  change(device);
  try {
    ParseSimDevice(device.dump(), "phone.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(SimDeviceTest, ThePhoneIsWhatThePaperPrints) {
  const SimDevice phone = ResolveSimDevice("oneplus-12");
  CheckSimDevice(phone, "phone");
  EXPECT_EQ(phone.memory_bytes, 19'000'000'000u);  // Table 3
  EXPECT_EQ(phone.num_compute_cores(), 4);         // Figure 4
  EXPECT_EQ(phone.cores[static_cast<size_t>(phone.io_kind)].kind, "big");
  // Table 1, through the model: 4 KB reads in a range of 128 MB.
  for (const auto& [kind, megabytes] : {std::pair{0, 1076.10}, {1, 1007.95}, {2, 761.87}}) {
    DeviceModel flash(phone.flash);
    RandomWords random(1);
    int64_t done_ns = 0;
    constexpr int kReads = 2000;
    for (int i = 0; i < kReads; ++i) {
      const uint64_t offset = 8192 * random.NextBelow((128 << 20) / 8192);
      done_ns = flash.Serve({offset, 4096, 0, kind}, 0);
    }
    EXPECT_NEAR(kReads * 4096.0 / static_cast<double>(done_ns) * 1e3, megabytes, 1);
  }
}

TEST(SimDeviceTest, JsonIsReadBackAsItWas) {
  for (const SimDevice& device : {OnePlus12(), FlatDevice(1e9, 1e8)}) {
    const std::string text = SimDeviceJson(device);
    EXPECT_EQ(SimDeviceJson(ParseSimDevice(text, "x.json")), text);
  }
  json device = json::parse(SimDeviceJson(OnePlus12()));
  device["sources"] = {{"memory.bytes", "Table 3"}};
  EXPECT_NO_THROW(ParseSimDevice(device.dump(), "x.json"));
}

TEST(SimDeviceTest, RefusesHostileFilesInOneSentence) {
  EXPECT_EQ(Refusal([](json&) {}), "");
  const std::vector<std::pair<std::function<void(json&)>, const char*>> changes = {
      {[](json& d) { d = json::array(); }, "an object"},
      {[](json& d) { d.erase("flash"); }, "flash is missing"},
      {[](json& d) { d["speed"] = 1; }, "unknown key 'speed'"},
      {[](json& d) { d["flash"]["speed"] = 1; }, "unknown key 'flash.speed'"},
      {[](json& d) { d["name"] = 5; }, "name"},
      {[](json& d) { d["cores"] = json::array(); }, "compute"},
      {[](json& d) { d["cores"] = "many"; }, "cores"},
      {[](json& d) { d["cores"][1]["kind"] = "big"; }, "kind"},
      {[](json& d) { d["cores"][0]["count"] = 1e300; }, "count"},
      {[](json& d) { d["cores"][0]["count"] = -1; }, "count"},
      {[](json& d) { d["cores"][0]["macs_per_s"] = 0; }, "macs_per_s"},
      {[](json& d) { d["cores"][0]["macs_per_s"] = nullptr; }, "macs_per_s"},
      {[](json& d) { d["cores"][0]["read_us"] = -1; }, "read_us"},
      {[](json& d) { d["compute"]["mid"] = 6; }, "mid"},
      {[](json& d) { d["compute"]["mid"] = 0; }, "at least one core"},
      {[](json& d) { d["compute"]["huge"] = 1; }, "compute"},
      {[](json& d) {
         d["compute"] = {{"big", 1}};
       },
       "big"},  // it reads
      {[](json& d) { d["io"] = "none"; }, "io"},
      {[](json& d) { d["memory"]["bytes"] = 18446744073709551615u; }, "memory.bytes"},
      {[](json& d) { d["memory"]["bytes_per_s"] = -5; }, "bytes_per_s"},
      {[](json& d) { d["mmap_block_bytes"] = 1; }, "mmap_block_bytes"},
      {[](json& d) { d["flash"]["random"] = json::array(); }, "random"},
      {[](json& d) { d["flash"]["random"][0]["bytes_per_s"] = 0; }, "random"},
      {[](json& d) { d["flash"]["random"][0]["block_bytes"] = 1 << 30; }, "ascending"},
      {[](json& d) { d["flash"]["random"][0] = 3; }, "an object"},
      {[](json& d) { d["flash"]["window_reads"] = 65; }, "window_reads"},
      {[](json& d) { d["flash"]["command_queues"] = 0; }, "command_queues"},
      {[](json& d) { d["flash"]["contention_us"] = {"a"}; }, "contention_us"},
      {[](json& d) { d["flash"]["latency_us"] = -1; }, "latency"},
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string refusal = Refusal(changes[i].first);
    EXPECT_THAT(refusal, HasSubstr(changes[i].second));
    EXPECT_THAT(refusal, Not(HasSubstr("\n")));
  }
}

TEST(SimDeviceTest, SurvivesAnyText) {
  const std::string good = SimDeviceJson(OnePlus12());
  RandomWords random(9);
  for (size_t cut = 0; cut + 2 < good.size(); cut += 7) {
    EXPECT_THROW(ParseSimDevice(good.substr(0, cut), "x.json"), Error);
  }
  for (int i = 0; i < 500; ++i) {
    std::string bad = good;
    bad[random.NextBelow(bad.size())] = static_cast<char>(random.NextBelow(256));
    try {
      CheckSimDevice(ParseSimDevice(bad, "x.json"), "x.json");
    } catch (const Error&) {
    }
  }
  EXPECT_THROW(ParseSimDevice(std::string(100'000, '['), "x.json"), Error);
  EXPECT_THROW(ResolveSimDevice("iphone"), Error);
  EXPECT_THROW(ResolveSimDevice("/nowhere/device.json"), Error);
}

}  // namespace
}  // namespace hearth
