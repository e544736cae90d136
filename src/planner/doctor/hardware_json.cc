// Hardware profiles as JSON. The file may be anybody's: every field, type and range is checked.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "plan/json_object.h"
#include "plan/json_reader.h"
#include "planner/doctor/hardware.h"
#include "storage/text_file.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;
using nlohmann::json;

constexpr int kHardwareVersion = 9;
// A profile is some tens of kilobytes; a larger file is something else given by mistake.
constexpr uint64_t kMostProfileBytes = uint64_t{16} << 20;
constexpr size_t kMostProfileTextBytes = 4096;
constexpr size_t kMostProfileEntries = 65536;
constexpr int kMostCpus = 65536;
constexpr int kMostDepth = 4096;
constexpr uint64_t kMostMachineBytes = uint64_t{1} << 62;
// No machine is faster, and nothing measured takes longer.
constexpr double kMostPerSecond = 1e18;
constexpr double kMostMeasuredSeconds = 1e6;

Json HardwareSpreadJson(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

template <typename T>
Json NullOr(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json CoresJson(const HardwareProfile& profile) {
  Json out = Json::array();
  for (const CoreSpeed& core : profile.cores) {
    out.push_back({{"cpu", core.cpu},
                   {"is_big", core.is_big},
                   {"int8_macs_per_s", HardwareSpreadJson(core.int8_macs_per_s)},
                   {"float_ops_per_s", HardwareSpreadJson(core.float_ops_per_s)},
                   {"look_up_seconds", HardwareSpreadJson(core.look_up_seconds)}});
  }
  return out;
}

Json ThreadsJson(const HardwareProfile& profile) {
  Json out = Json::array();
  for (const ThreadSpeed& speed : profile.threads) {
    out.push_back({{"threads", speed.threads},
                   {"read_bytes_per_s", HardwareSpreadJson(speed.read_bytes_per_s)},
                   {"matrix_bytes_per_s", HardwareSpreadJson(speed.matrix_bytes_per_s)},
                   {"dot_bytes_per_s", HardwareSpreadJson(speed.dot_bytes_per_s)},
                   {"add_bytes_per_s", HardwareSpreadJson(speed.add_bytes_per_s)},
                   {"narrow_dot_bytes_per_s", HardwareSpreadJson(speed.narrow_dot_bytes_per_s)},
                   {"narrow_add_bytes_per_s", HardwareSpreadJson(speed.narrow_add_bytes_per_s)},
                   {"check_bytes_per_s", HardwareSpreadJson(speed.check_bytes_per_s)},
                   {"prompt_macs_per_s", HardwareSpreadJson(speed.prompt_macs_per_s)},
                   {"section_seconds", HardwareSpreadJson(speed.section_seconds)},
                   {"busy_io_bytes_per_s", HardwareSpreadJson(speed.busy_io_bytes_per_s)},
                   {"busy_neuron_bytes_per_s", HardwareSpreadJson(speed.busy_neuron_bytes_per_s)},
                   {"range_share", HardwareSpreadJson(speed.range_share)}});
  }
  return out;
}

Json DevicesJson(const HardwareProfile& profile) {
  Json out = Json::array();
  for (const DeviceSpeed& device : profile.devices) out.push_back(DeviceSpeedJson(device));
  return out;
}

Json TilesJson(const HardwareProfile& profile) {
  Json out = Json::array();
  for (const MeasuredTiles& measured : profile.tiles) {
    const TileGeometry& geometry = measured.tiles.geometry;
    out.push_back({{"tokens", measured.tiles.tokens},
                   {"panel_tokens", geometry.panel_tokens},
                   {"tiles", geometry.tiles},
                   {"unpacks", geometry.unpacks},
                   {"seconds", measured.seconds},
                   {"solved_seconds", measured.solved_seconds}});
  }
  return out;
}

Json StorageJson(const StorageProfile& storage) {
  Json reads = Json::array();
  for (const IoSpeed& read : storage.reads) {
    reads.push_back(
        {{"block_bytes", read.block_bytes},
         {"queue_depth", read.queue_depth},
         {"range_bytes", read.range_bytes == 0 ? Json(nullptr) : Json(read.range_bytes)},
         {"cpu", read.cpu < 0 ? Json(nullptr) : Json(read.cpu)},
         {"bytes_per_s", HardwareSpreadJson(read.bytes_per_s)},
         {"cpu_seconds_per_read", HardwareSpreadJson(read.cpu_seconds_per_read)},
         {"batch_seconds", HardwareSpreadJson(read.batch_seconds)}});
  }
  return {{"directory", storage.directory},
          {"file_bytes", storage.file_bytes},
          {"backend", storage.backend},
          {"note", storage.note},
          {"is_direct", storage.is_direct},
          {"is_in_memory", storage.is_in_memory},
          {"alignment_bytes", storage.alignment_bytes},
          {"reads", std::move(reads)}};
}

// More than 0, or 0 too where `least` says so.
Spread ReadSpread(JsonObject& object, const char* key, double least, double most) {
  JsonObject fields = object.Object(key);
  Spread spread = {fields.Number("median", least, most), fields.Number("min", least, most),
                   fields.Number("max", least, most)};
  fields.Finish();
  if (spread.min > spread.median || spread.median > spread.max) {
    object.Fail(key, "min <= median <= max");
  }
  return spread;
}
// Nothing that was measured is slower or shorter; logarithms are taken of both.
Spread ReadSpeed(JsonObject& object, const char* key) {
  return ReadSpread(object, key, 1e-6, kMostPerSecond);
}
Spread ReadSeconds(JsonObject& object, const char* key) {
  return ReadSpread(object, key, 1e-12, kMostMeasuredSeconds);
}

int SmallInt(JsonObject& object, const char* key, int least, int most) {
  return static_cast<int>(object.Int(key, least, most));
}

std::vector<std::string> Texts(JsonObject& object, const char* key) {
  std::vector<std::string> texts;
  for (const json& value : object.List(key, kMostProfileEntries)) {
    if (!value.is_string()) object.Fail(key, "a list of strings", value);
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

void ReadMachine(JsonObject& document, HardwareProfile& profile) {
  profile.measured_at_s =
      static_cast<int64_t>(document.Count("measured_at_s", 0, uint64_t{1} << 40));
  profile.rounds = SmallInt(document, "rounds", 1, 1000000);
  profile.cpu_model = document.Text("cpu_model");
  profile.system = document.Text("system");
  profile.isa = document.Text("isa");
  profile.cpus = SmallInt(document, "cpus", 1, kMostCpus);
  profile.machine_cpus = SmallInt(document, "machine_cpus", profile.cpus, kMostCpus);
  profile.memory_bytes = document.Count("memory_bytes", 0, kMostMachineBytes);
  profile.available_memory_bytes = document.Count("available_memory_bytes", 0, kMostMachineBytes);
  profile.probe_memory_bytes = document.Count("probe_memory_bytes", 0, kMostMachineBytes);
  profile.load_average = document.Number("load_average", 0, 1e9);
  if (!document.IsNull("mlock_limit_bytes")) {
    profile.mlock_limit_bytes = document.Count("mlock_limit_bytes", 0, UINT64_MAX);
  }
  profile.has_io_uring = document.Bool("has_io_uring");
  profile.accelerators = Texts(document, "accelerators");
  document.ForEach("devices", kMostProfileEntries,
                   [&](JsonObject& fields) { profile.devices.push_back(ReadDeviceSpeed(fields)); });
  profile.tiles = ReadTiles(document);
}

void ReadCores(JsonObject& document, HardwareProfile& profile) {
  std::set<int> seen;
  document.ForEach("cores", kMostProfileEntries, [&](JsonObject& fields) {
    CoreSpeed core;
    core.cpu = SmallInt(fields, "cpu", 0, kMostCpus);
    core.is_big = fields.Bool("is_big");
    core.int8_macs_per_s = ReadSpeed(fields, "int8_macs_per_s");
    core.float_ops_per_s = ReadSpeed(fields, "float_ops_per_s");
    core.look_up_seconds = ReadSeconds(fields, "look_up_seconds");
    if (!seen.insert(core.cpu).second) fields.Fail("cpu", "each core once", core.cpu);
    profile.cores.push_back(core);
  });
  if (profile.cores.empty()) document.Fail("cores", "at least one core", json::array());
}

void ReadThreads(JsonObject& document, HardwareProfile& profile) {
  document.ForEach("threads", kMostProfileEntries, [&](JsonObject& fields) {
    ThreadSpeed speed;
    speed.threads = SmallInt(fields, "threads", 1, kMostCpus);
    speed.read_bytes_per_s = ReadSpeed(fields, "read_bytes_per_s");
    speed.matrix_bytes_per_s = ReadSpeed(fields, "matrix_bytes_per_s");
    speed.dot_bytes_per_s = ReadSpeed(fields, "dot_bytes_per_s");
    speed.add_bytes_per_s = ReadSpeed(fields, "add_bytes_per_s");
    speed.narrow_dot_bytes_per_s = ReadSpeed(fields, "narrow_dot_bytes_per_s");
    speed.narrow_add_bytes_per_s = ReadSpeed(fields, "narrow_add_bytes_per_s");
    speed.check_bytes_per_s = ReadSpeed(fields, "check_bytes_per_s");
    speed.prompt_macs_per_s = ReadSpeed(fields, "prompt_macs_per_s");
    speed.section_seconds = ReadSeconds(fields, "section_seconds");
    speed.busy_io_bytes_per_s = ReadSpeed(fields, "busy_io_bytes_per_s");
    speed.busy_neuron_bytes_per_s = ReadSpeed(fields, "busy_neuron_bytes_per_s");
    speed.range_share = ReadSpread(fields, "range_share", 0, 1);
    if (!profile.threads.empty() && speed.threads <= profile.threads.back().threads) {
      fields.Fail("threads", "ascending numbers", speed.threads);
    }
    profile.threads.push_back(speed);
  });
  if (profile.threads.empty()) document.Fail("threads", "at least one row", json::array());
}

IoSpeed ReadIoSpeed(JsonObject& fields) {
  IoSpeed read;
  read.block_bytes = fields.Count("block_bytes", 1, uint64_t{1} << 32);
  read.queue_depth = SmallInt(fields, "queue_depth", 1, kMostDepth);
  if (!fields.IsNull("range_bytes"))
    read.range_bytes = fields.Count("range_bytes", 1, kMostMachineBytes);
  if (!fields.IsNull("cpu")) read.cpu = SmallInt(fields, "cpu", 0, kMostCpus);
  read.bytes_per_s = ReadSpeed(fields, "bytes_per_s");
  read.cpu_seconds_per_read = ReadSeconds(fields, "cpu_seconds_per_read");
  read.batch_seconds = ReadSeconds(fields, "batch_seconds");
  return read;
}

void ReadStorage(JsonObject& document, HardwareProfile& profile) {
  JsonObject fields = document.Object("storage");
  StorageProfile& storage = profile.storage;
  storage.directory = fields.Text("directory");
  storage.file_bytes = fields.Count("file_bytes", 1, kMostMachineBytes);
  storage.backend = fields.Text("backend");
  if (storage.backend != "io_uring" && storage.backend != "pread") {
    fields.Fail("backend", "io_uring or pread", storage.backend);
  }
  storage.note = fields.Text("note");
  storage.is_direct = fields.Bool("is_direct");
  storage.is_in_memory = fields.Bool("is_in_memory");
  storage.alignment_bytes = static_cast<uint32_t>(fields.Count("alignment_bytes", 1, 1u << 30));
  fields.ForEach("reads", kMostProfileEntries,
                 [&](JsonObject& entry) { storage.reads.push_back(ReadIoSpeed(entry)); });
  fields.Finish();
  const bool has_curve =
      std::any_of(storage.reads.begin(), storage.reads.end(),
                  [](const IoSpeed& read) { return read.range_bytes == 0 && read.cpu < 0; });
  if (!has_curve) {
    fields.Fail("reads", "at least one of the whole file from any core", json::array());
  }
}

}  // namespace

nlohmann::ordered_json HardwareJson(const HardwareProfile& profile) {
  return {{"version", kHardwareVersion},
          {"machine", profile.MachineHash()},
          {"measured_at_s", profile.measured_at_s},
          {"rounds", profile.rounds},
          {"cpu_model", profile.cpu_model},
          {"system", profile.system},
          {"isa", profile.isa},
          {"cpus", profile.cpus},
          {"machine_cpus", profile.machine_cpus},
          {"memory_bytes", profile.memory_bytes},
          {"available_memory_bytes", profile.available_memory_bytes},
          {"probe_memory_bytes", profile.probe_memory_bytes},
          {"load_average", profile.load_average},
          {"mlock_limit_bytes", NullOr(profile.mlock_limit_bytes)},
          {"has_io_uring", profile.has_io_uring},
          {"accelerators", profile.accelerators},
          {"devices", DevicesJson(profile)},
          {"tiles", TilesJson(profile)},
          {"cores", CoresJson(profile)},
          {"threads", ThreadsJson(profile)},
          {"storage", StorageJson(profile.storage)},
          {"warnings", profile.warnings}};
}

HardwareProfile HardwareFromJson(const nlohmann::json& document, const std::string& file) {
  JsonObject fields(document, file, ErrorCode::kCorrupt);
  if (const uint64_t version = fields.Count("version", 1, 1u << 30); version != kHardwareVersion) {
    fields.Fail("version", fmt::format("{} (run 'hearth doctor' again)", kHardwareVersion),
                version);
  }
  const std::string machine = fields.Text("machine");
  HardwareProfile profile;
  ReadMachine(fields, profile);
  ReadCores(fields, profile);
  ReadThreads(fields, profile);
  ReadStorage(fields, profile);
  profile.warnings = Texts(fields, "warnings");
  fields.Finish();
  if (machine != profile.MachineHash()) {
    fields.Fail("machine", "the hash of the machine that the other fields name", machine);
  }
  return profile;
}

HardwareProfile ReadHardware(const std::string& path) {
  const std::string text = ReadText(path, {.most_bytes = kMostProfileBytes,
                                           .what = "a hardware profile",
                                           .too_large = ErrorCode::kCorrupt});
  // Without exceptions: the library's messages name its own parts.
  const json document = ReadJsonDocument(text, path, ErrorCode::kCorrupt);
  if (document.is_discarded()) {
    throw Error(ErrorCode::kCorrupt, path, "is not a hardware profile: not valid JSON");
  }
  return HardwareFromJson(document, path);
}

}  // namespace hearth
