#include "planner/doctor/device_speed.h"

#include "accel/device_probe.h"
#include "accel/devices.h"

namespace hearth {
namespace {

constexpr int64_t kMostDevices = 4096;
constexpr size_t kMostBatches = 64;
constexpr int64_t kMostBatchTokens = 1 << 20;
constexpr uint64_t kMostDeviceBytes = uint64_t{1} << 62;
constexpr uint64_t kMostDeviceCount = uint64_t{1} << 31;

struct NamedRate {
  const char* name;
  Spread DeviceRateSpreads::*spread;
  double accel::DeviceRates::*rate;
};

constexpr NamedRate kDeviceRates[] = {
    {"read_bytes_per_s", &DeviceRateSpreads::read_bytes_per_s,
     &accel::DeviceRates::read_bytes_per_s},
    {"matvec_bytes_per_s", &DeviceRateSpreads::matvec_bytes_per_s,
     &accel::DeviceRates::matvec_bytes_per_s},
    {"matmul_macs_per_s", &DeviceRateSpreads::matmul_macs_per_s,
     &accel::DeviceRates::matmul_macs_per_s},
    {"upload_bytes_per_s", &DeviceRateSpreads::upload_bytes_per_s,
     &accel::DeviceRates::upload_bytes_per_s},
    {"download_bytes_per_s", &DeviceRateSpreads::download_bytes_per_s,
     &accel::DeviceRates::download_bytes_per_s},
    {"launch_seconds", &DeviceRateSpreads::launch_seconds, &accel::DeviceRates::launch_seconds}};

accel::DeviceKind KindFromName(const std::string& name) {
  for (const accel::DeviceKind kind : {accel::DeviceKind::kGpu, accel::DeviceKind::kAccelerator}) {
    if (name == accel::NameOf(kind)) return kind;
  }
  return accel::DeviceKind::kCpu;
}

DeviceRateSpreads ReadRates(JsonObject rates) {
  DeviceRateSpreads spreads;
  for (const NamedRate& each : kDeviceRates) {
    JsonObject fields = rates.Object(each.name);
    Spread& spread = spreads.*each.spread;
    spread = {fields.Number("median", 1e-12, 1e18), fields.Number("min", 1e-12, 1e18),
              fields.Number("max", 1e-12, 1e18)};
    fields.Finish();
    if (spread.min > spread.median || spread.median > spread.max) {
      rates.Fail(each.name, "min <= median <= max");
    }
  }
  rates.Finish();
  return spreads;
}

}  // namespace

DeviceRateSpreads MeasureDevice(size_t index, const DeviceEffort& effort,
                                const std::string& cache_folder) {
  const std::unique_ptr<accel::Device> device =
      accel::OpenDevice(index, {.cache_folder = cache_folder});
  accel::DeviceProbe probe(*device, effort.bytes);
  std::vector<accel::DeviceRates> rounds;
  for (int round = 0; round < effort.rounds; ++round) {
    rounds.push_back(probe.Measure(effort.seconds));
  }
  DeviceRateSpreads spreads;
  for (const NamedRate& each : kDeviceRates) {
    std::vector<double> values;
    for (const accel::DeviceRates& round : rounds) values.push_back(round.*each.rate);
    spreads.*each.spread = SpreadOf(values);
  }
  return spreads;
}

nlohmann::ordered_json DeviceSpeedJson(const DeviceSpeed& device) {
  const accel::DeviceInfo& info = device.info;
  nlohmann::ordered_json rates;
  if (device.rates) {
    for (const NamedRate& each : kDeviceRates) {
      const Spread& spread = (*device.rates).*each.spread;
      rates[each.name] = {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
    }
  }
  nlohmann::ordered_json batches = nlohmann::ordered_json::array();
  for (const BatchSpeed& batch : device.batches) {
    batches.push_back({{"tokens", batch.tokens},
                       {"processor_macs_per_s", batch.processor_macs_per_s},
                       {"device_macs_per_s", batch.device_macs_per_s}});
  }
  return {{"index", device.index},
          {"name", info.name},
          {"kind", accel::NameOf(info.kind)},
          {"vendor", info.vendor},
          {"platform", info.platform},
          {"driver", info.driver},
          {"memory_bytes", info.memory_bytes},
          {"max_buffer_bytes", info.max_buffer_bytes},
          {"local_bytes", info.local_bytes},
          {"compute_units", info.compute_units},
          {"clock_mhz", info.clock_mhz},
          {"max_group_size", info.max_group_size},
          {"shares_memory", info.shares_memory},
          {"has_half", info.has_half},
          {"rates", rates},
          {"batches", batches}};
}

DeviceSpeed ReadDeviceSpeed(JsonObject& fields) {
  DeviceSpeed device;
  device.index = static_cast<size_t>(fields.Int("index", 0, kMostDevices));
  accel::DeviceInfo& info = device.info;
  info.name = fields.Text("name");
  info.kind = KindFromName(fields.OneOf("kind", {"gpu", "accelerator", "cpu"}));
  info.vendor = fields.Text("vendor");
  info.platform = fields.Text("platform");
  info.driver = fields.Text("driver");
  info.memory_bytes = fields.Count("memory_bytes", 0, kMostDeviceBytes);
  info.max_buffer_bytes = fields.Count("max_buffer_bytes", 0, kMostDeviceBytes);
  info.local_bytes = fields.Count("local_bytes", 0, kMostDeviceBytes);
  info.compute_units = static_cast<uint32_t>(fields.Count("compute_units", 0, kMostDeviceCount));
  info.clock_mhz = static_cast<uint32_t>(fields.Count("clock_mhz", 0, kMostDeviceCount));
  info.max_group_size = fields.Count("max_group_size", 0, kMostDeviceCount);
  info.shares_memory = fields.Bool("shares_memory");
  info.has_half = fields.Bool("has_half");
  if (!fields.IsNull("rates")) device.rates = ReadRates(fields.Object("rates"));
  fields.ForEach("batches", kMostBatches, [&](JsonObject& batch) {
    device.batches.push_back({batch.Int("tokens", 1, kMostBatchTokens),
                              batch.Number("processor_macs_per_s", 1, 1e18),
                              batch.Number("device_macs_per_s", 1, 1e18)});
  });
  return device;
}

}  // namespace hearth
