// Devices as JSON (device_model.h): the text is somebody else's, so every key, type and range is
// checked.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "planner/device_model.h"
#include "storage/block_reader.h"

namespace hearth {
namespace {

using DeviceJson = nlohmann::json;

// A device is a few kilobytes; a larger file is something else given by mistake.
constexpr uint64_t kMaxDeviceBytes = uint64_t{1} << 20;
constexpr size_t kMaxPoints = 1000;
constexpr double kMicrosecond = 1e-6;

// One object of the file and where it lies in it.
class DeviceObject {
 public:
  DeviceObject(const DeviceJson& value, std::string file, std::string path,
               std::initializer_list<const char*> keys)
      : value_(value), file_(std::move(file)), path_(std::move(path)) {
    if (!value.is_object()) Fail("", "an object");
    for (const auto& [key, ignored] : value.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        throw Error(ErrorCode::kInvalidArgument, file_,
                    fmt::format("unknown key '{}{}'", path_, Printable(key)));
      }
    }
  }

  bool Has(const char* key) const { return value_.contains(key); }
  const DeviceJson& At(const char* key) const {
    if (!Has(key)) {
      throw Error(ErrorCode::kInvalidArgument, file_, fmt::format("{}{} is missing", path_, key));
    }
    return value_.at(key);
  }
  std::string String(const char* key) const {
    if (!At(key).is_string()) Fail(key, "a string");
    return At(key).get<std::string>();
  }
  double Number(const char* key) const {
    if (!At(key).is_number()) Fail(key, "a number");
    const auto number = At(key).get<double>();
    if (!std::isfinite(number)) Fail(key, "a finite number");
    return number;
  }
  double Number(const char* key, double fallback) const {
    return Has(key) ? Number(key) : fallback;
  }
  int64_t Integer(const char* key, int64_t low, int64_t high) const {
    const DeviceJson& value = At(key);
    const bool wraps = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
    if (!value.is_number_integer() || wraps || value.get<int64_t>() < low ||
        value.get<int64_t>() > high) {
      Fail(key, fmt::format("a whole number from {} to {}", low, high));
    }
    return value.get<int64_t>();
  }
  const DeviceJson& List(const char* key, size_t most) const {
    if (!At(key).is_array() || At(key).size() > most) {
      Fail(key, fmt::format("a list of at most {}", most));
    }
    return At(key);
  }
  [[noreturn]] void Fail(const std::string& key, const std::string& expected) const {
    const DeviceJson& found = key.empty() ? value_ : value_.at(key);
    throw Error(ErrorCode::kInvalidArgument, file_, path_ + key, expected,
                Printable(found.dump(-1, ' ', true, DeviceJson::error_handler_t::replace)));
  }
  const std::string& file() const { return file_; }
  std::string PathOf(const char* key) const { return path_ + key + "."; }

 private:
  const DeviceJson& value_;
  const std::string file_;
  const std::string path_;
};

std::vector<ThroughputPoint> ReadCurve(const DeviceObject& object, const char* key,
                                       const char* at) {
  std::vector<ThroughputPoint> curve;
  if (!object.Has(key)) return curve;
  for (const DeviceJson& point : object.List(key, kMaxPoints)) {
    const DeviceObject p(point, object.file(), object.PathOf(key), {at, "bytes_per_s"});
    curve.push_back(
        {static_cast<uint64_t>(p.Integer(at, 1, int64_t{1} << 50)), p.Number("bytes_per_s")});
  }
  return curve;
}

DeviceProfile ReadFlash(const DeviceObject& device) {
  const DeviceObject flash(
      device.At("flash"), device.file(), "flash.",
      {"name", "random", "sequential", "random_in_range", "range_block_bytes", "max_reads_per_s",
       "max_bytes_per_s", "latency_us", "command_queues", "contention_us", "window_reads"});
  DeviceProfile profile;
  profile.name = flash.String("name");
  profile.random = ReadCurve(flash, "random", "block_bytes");
  profile.sequential = ReadCurve(flash, "sequential", "block_bytes");
  profile.random_in_range = ReadCurve(flash, "random_in_range", "range_bytes");
  if (flash.Has("range_block_bytes")) {
    profile.range_block_bytes =
        static_cast<uint64_t>(flash.Integer("range_block_bytes", 0, int64_t{1} << 40));
  }
  profile.max_reads_per_second = flash.Number("max_reads_per_s", 0);
  profile.max_bytes_per_second = flash.Number("max_bytes_per_s", 0);
  profile.latency_seconds = flash.Number("latency_us", 0) * kMicrosecond;
  if (flash.Has("command_queues")) {
    profile.command_queues = static_cast<int>(flash.Integer("command_queues", 1, 1024));
  }
  if (flash.Has("window_reads")) {
    profile.window_reads =
        static_cast<int>(flash.Integer("window_reads", 1, DeviceModel::kMaxWindow));
  }
  if (flash.Has("contention_us")) {
    for (const DeviceJson& value : flash.List("contention_us", kMaxPoints)) {
      if (!value.is_number()) flash.Fail("contention_us", "a list of numbers");
      profile.contention_seconds.push_back(value.get<double>() * kMicrosecond);
    }
  }
  return profile;
}

int KindOf(const SimDevice& device, const std::string& kind, const DeviceObject& object,
           const char* key) {
  for (size_t i = 0; i < device.cores.size(); ++i) {
    if (device.cores[i].kind == kind) return static_cast<int>(i);
  }
  object.Fail(key, "kinds of the cores listed");
}

void ReadCores(const DeviceObject& object, SimDevice& device) {
  for (const DeviceJson& value : object.List("cores", 16)) {
    const DeviceObject core(value, object.file(), "cores.",
                            {"kind", "count", "macs_per_s", "read_us"});
    SimCores cores;
    cores.kind = core.String("kind");
    cores.count = static_cast<int>(core.Integer("count", 1, 1024));
    cores.macs_per_s = core.Number("macs_per_s");
    cores.read_seconds = core.Number("read_us", 0) * kMicrosecond;
    for (const SimCores& other : device.cores) {
      if (other.kind == cores.kind) core.Fail("kind", "a kind that is not there yet");
    }
    device.cores.push_back(std::move(cores));
  }
  device.compute.assign(device.cores.size(), 0);
  if (!object.At("compute").is_object()) object.Fail("compute", "an object of kinds and counts");
  for (const auto& [kind, count] : object.At("compute").items()) {
    if (!count.is_number_unsigned() || count.get<uint64_t>() > 1024) {
      object.Fail("compute", "counts from 0 to 1024");
    }
    device.compute[static_cast<size_t>(KindOf(device, kind, object, "compute"))] = count.get<int>();
  }
  device.io_kind = KindOf(device, object.String("io"), object, "io");
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
  DeviceJson root;
  try {
    root = DeviceJson::parse(text, [&](int depth, DeviceJson::parse_event_t, DeviceJson&) {
      if (depth > 8) throw Error(ErrorCode::kInvalidArgument, file_name, "it is nested too deeply");
      return true;
    });
  } catch (const DeviceJson::exception&) {
    throw Error(ErrorCode::kInvalidArgument, file_name, "not valid JSON");
  }
  const DeviceObject object(
      root, file_name, "",
      {"name", "cores", "compute", "io", "memory", "flash", "mmap_block_bytes", "sources"});
  SimDevice device;
  device.name = object.String("name");
  ReadCores(object, device);
  const DeviceObject memory(object.At("memory"), file_name, "memory.", {"bytes", "bytes_per_s"});
  device.memory_bytes = static_cast<uint64_t>(memory.Integer("bytes", 1, int64_t{1} << 50));
  device.memory_bytes_per_s = memory.Number("bytes_per_s");
  if (object.Has("mmap_block_bytes")) {
    device.mmap_block_bytes =
        static_cast<uint64_t>(object.Integer("mmap_block_bytes", 4096, int64_t{1} << 26));
  }
  device.flash = ReadFlash(object);
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
    throw Error(ErrorCode::kNotFound, "--device", "device",
                fmt::format("a JSON file or one of {}", fmt::join(SimDeviceNames(), ", ")),
                "'" + Printable(name_or_path) + "'");
  }
  const std::unique_ptr<BlockReader> reader = OpenFileReader(name_or_path);
  if (reader->size_bytes() > kMaxDeviceBytes) {
    throw Error(ErrorCode::kInvalidArgument, name_or_path, "size of a device file",
                fmt::format("at most {} bytes", kMaxDeviceBytes),
                fmt::format("{}", reader->size_bytes()));
  }
  std::string text(reader->size_bytes(), '\0');
  reader->ReadAt(0, std::as_writable_bytes(std::span(text)));
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
      {"mmap_block_bytes", device.mmap_block_bytes},
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
