// Devices as JSON (device_model.h): the text is somebody else's, so every key, type and range is
// checked.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plan/json_object.h"
#include "plan/json_reader.h"
#include "planner/simulator/device_model.h"
#include "storage/text_file.h"

namespace hearth {
namespace {

using DeviceJson = nlohmann::json;

// A device is a few kilobytes; a larger file is something else given by mistake.
constexpr uint64_t kMaxDeviceBytes = uint64_t{1} << 20;
constexpr size_t kMaxPoints = 1000;
constexpr double kMicrosecond = 1e-6;

std::vector<ThroughputPoint> ReadCurve(JsonObject& object, const char* key, const char* at) {
  std::vector<ThroughputPoint> curve;
  if (!object.Has(key)) return curve;
  object.ForEach(key, kMaxPoints, [&](JsonObject& point) {
    curve.push_back(
        {static_cast<uint64_t>(point.Int(at, 1, int64_t{1} << 50)), point.Number("bytes_per_s")});
  });
  return curve;
}

DeviceProfile ReadFlash(JsonObject flash) {
  DeviceProfile profile;
  profile.name = flash.Text("name");
  profile.random = ReadCurve(flash, "random", "block_bytes");
  profile.sequential = ReadCurve(flash, "sequential", "block_bytes");
  profile.random_in_range = ReadCurve(flash, "random_in_range", "range_bytes");
  if (flash.Has("range_block_bytes")) {
    profile.range_block_bytes =
        static_cast<uint64_t>(flash.Int("range_block_bytes", 0, int64_t{1} << 40));
  }
  profile.max_reads_per_second = flash.NumberOr("max_reads_per_s", 0);
  profile.max_bytes_per_second = flash.NumberOr("max_bytes_per_s", 0);
  profile.latency_seconds = flash.NumberOr("latency_us", 0) * kMicrosecond;
  if (flash.Has("command_queues")) {
    profile.command_queues = static_cast<int>(flash.Int("command_queues", 1, 1024));
  }
  if (flash.Has("window_reads")) {
    profile.window_reads = static_cast<int>(flash.Int("window_reads", 1, DeviceModel::kMaxWindow));
  }
  if (flash.Has("contention_us")) {
    for (const DeviceJson& value : flash.List("contention_us", kMaxPoints)) {
      if (!value.is_number()) flash.Fail("contention_us", "a list of numbers", value);
      profile.contention_seconds.push_back(value.get<double>() * kMicrosecond);
    }
  }
  flash.Finish();
  return profile;
}

int KindOf(const SimDevice& device, const std::string& kind, const JsonObject& object,
           const char* key) {
  for (size_t i = 0; i < device.cores.size(); ++i) {
    if (device.cores[i].kind == kind) return static_cast<int>(i);
  }
  object.Fail(key, "kinds of the cores listed");
}

void ReadCores(JsonObject& object, SimDevice& device) {
  object.ForEach("cores", 16, [&](JsonObject& core) {
    SimCores cores;
    cores.kind = core.Text("kind");
    cores.count = static_cast<int>(core.Int("count", 1, 1024));
    cores.macs_per_s = core.Number("macs_per_s");
    cores.read_seconds = core.NumberOr("read_us", 0) * kMicrosecond;
    for (const SimCores& other : device.cores) {
      if (other.kind == cores.kind) core.Fail("kind", "a kind that is not there yet");
    }
    device.cores.push_back(std::move(cores));
  });
  device.compute.assign(device.cores.size(), 0);
  const DeviceJson& compute = object.Get("compute");
  if (!compute.is_object()) object.Fail("compute", "an object of kinds and counts");
  for (const auto& [kind, count] : compute.items()) {
    if (!count.is_number_unsigned() || count.get<uint64_t>() > 1024) {
      object.Fail("compute", "counts from 0 to 1024");
    }
    device.compute[static_cast<size_t>(KindOf(device, kind, object, "compute"))] = count.get<int>();
  }
  device.io_kind = KindOf(device, object.Text("io"), object, "io");
}

DeviceJson CurveJson(const std::vector<ThroughputPoint>& curve, const char* at) {
  DeviceJson list = DeviceJson::array();
  for (const ThroughputPoint& point : curve) {
    list.push_back({{at, point.at_bytes}, {"bytes_per_s", point.bytes_per_second}});
  }
  return list;
}

}  // namespace

SimDevice ParseSimDevice(std::string_view text, const std::string& file_name) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, file_name, why);
  };
  const auto root = ReadJson<DeviceJson>(text, {.most_levels = 9}, fail);
  if (root.is_discarded()) fail("not valid JSON");
  JsonObject object(root, file_name, ErrorCode::kInvalidArgument);
  SimDevice device;
  device.name = object.Text("name");
  ReadCores(object, device);
  JsonObject memory = object.Object("memory");
  device.memory_bytes = static_cast<uint64_t>(memory.Int("bytes", 1, int64_t{1} << 50));
  device.memory_bytes_per_s = memory.Number("bytes_per_s");
  memory.Finish();
  if (object.Has("mmap_block_bytes")) {
    device.mmap_block_bytes =
        static_cast<uint64_t>(object.Int("mmap_block_bytes", 4096, int64_t{1} << 26));
  }
  device.gathered_cost = object.NumberOr("gathered_cost", 1);
  device.mmap_bytes_per_s = object.NumberOr("mmap_bytes_per_s", 0);
  device.flash = ReadFlash(object.Object("flash"));
  object.Has("sources");  // for people
  object.Finish();
  for (const SimCores& cores : device.cores) {
    device.flash.core_seconds.push_back(cores.read_seconds);
  }
  CheckSimDevice(device, file_name);
  return device;
}

SimDevice ResolveSimDevice(const std::string& name_or_path) {
  if (name_or_path == "oneplus-12") return OnePlus12();
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  if (!is_path) {
    throw Error(ErrorCode::kNotFound, Field{"device"}, "device",
                fmt::format("a JSON file or one of {}", fmt::join(SimDeviceNames(), ", ")),
                "'" + Printable(name_or_path) + "'");
  }
  const std::string text =
      ReadText(name_or_path, {.most_bytes = kMaxDeviceBytes, .what = "a device file"});
  return ParseSimDevice(text, name_or_path);
}

std::string SimDeviceJson(const SimDevice& device) {
  nlohmann::ordered_json cores = nlohmann::ordered_json::array();
  nlohmann::ordered_json compute = nlohmann::ordered_json::object();
  for (size_t i = 0; i < device.cores.size(); ++i) {
    const SimCores& core = device.cores[i];
    cores.push_back({{"kind", core.kind},
                     {"count", core.count},
                     {"macs_per_s", core.macs_per_s},
                     {"read_us", core.read_seconds / kMicrosecond}});
    if (device.compute[i] > 0) compute[core.kind] = device.compute[i];
  }
  const DeviceProfile& flash = device.flash;
  DeviceJson contention = DeviceJson::array();
  for (const double seconds : flash.contention_seconds) {
    contention.push_back(seconds / kMicrosecond);
  }
  const nlohmann::ordered_json document = {
      {"name", device.name},
      {"cores", cores},
      {"compute", compute},
      {"io", device.cores[static_cast<size_t>(device.io_kind)].kind},
      {"memory", {{"bytes", device.memory_bytes}, {"bytes_per_s", device.memory_bytes_per_s}}},
      {"gathered_cost", device.gathered_cost},
      {"mmap_block_bytes", device.mmap_block_bytes},
      {"mmap_bytes_per_s", device.mmap_bytes_per_s},
      {"flash",
       {{"name", flash.name},
        {"random", CurveJson(flash.random, "block_bytes")},
        {"sequential", CurveJson(flash.sequential, "block_bytes")},
        {"random_in_range", CurveJson(flash.random_in_range, "range_bytes")},
        {"range_block_bytes", flash.range_block_bytes},
        {"max_reads_per_s", flash.max_reads_per_second},
        {"max_bytes_per_s", flash.max_bytes_per_second},
        {"latency_us", flash.latency_seconds / kMicrosecond},
        {"command_queues", flash.command_queues},
        {"contention_us", contention},
        {"window_reads", flash.window_reads}}}};
  return document.dump(1) + "\n";
}

}  // namespace hearth
