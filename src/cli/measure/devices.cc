// hearth devices: what there is beside the processor, and how fast it is.
#include "accel/devices.h"

#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/measure/doctor_report.h"
#include "cli/models/cache_folder.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"
#include "planner/doctor/device_speed.h"

namespace hearth::cli {
namespace {

struct DevicesCommand {
  std::string device;  // a number; empty: all
  bool limits_only = false;
  bool json = false;
};

std::string RateText(const char* name, const Spread& spread, double unit, const char* unit_name) {
  return fmt::format("  {:<16}{:.3g} {} ({:.3g}-{:.3g})\n", name, spread.median / unit, unit_name,
                     spread.min / unit, spread.max / unit);
}

std::string DeviceText(const DeviceSpeed& device) {
  const accel::DeviceInfo& info = device.info;
  std::string out = fmt::format("{}: {} ({})\n", device.index, info.name, accel::NameOf(info.kind));
  out += fmt::format("  {:<16}{}, {}\n", "driver", info.driver, info.platform);
  out += fmt::format("  {:<16}{}{}, {} in one buffer\n", "memory", FormatSize(info.memory_bytes),
                     info.shares_memory ? " shared with the host" : "",
                     FormatSize(info.max_buffer_bytes));
  out += fmt::format("  {:<16}{} at {} MHz, work-groups up to {} with {} of local memory\n",
                     "compute units", info.compute_units, info.clock_mhz, info.max_group_size,
                     FormatSize(info.local_bytes));
  if (!device.rates) return out;
  const DeviceRateSpreads& rates = *device.rates;
  return out + RateText("memory reads", rates.read_bytes_per_s, 1e9, "GB/s") +
         RateText("matrix x token", rates.matvec_bytes_per_s, 1e9, "GB/s") +
         RateText("prompts", rates.matmul_macs_per_s, 1e9, "GMAC/s") +
         RateText("upload", rates.upload_bytes_per_s, 1e9, "GB/s") +
         RateText("download", rates.download_bytes_per_s, 1e9, "GB/s") +
         RateText("launch", rates.launch_seconds, 1e-6, "us") + BatchesText(device, "  ");
}

// The numbers of the devices that were asked for: all of them, or the one that --device means.
std::vector<size_t> ChosenDevices(const DevicesCommand& options, const accel::DeviceList& list) {
  if (!options.device.empty()) {
    const auto chosen = accel::ChooseDevice(accel::ParseDeviceChoice(options.device), list);
    return chosen ? std::vector<size_t>{*chosen} : std::vector<size_t>{};
  }
  std::vector<size_t> all(list.devices.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

// Measures the chosen devices unless only their limits are wanted.
std::vector<DeviceSpeed> LookAt(const DevicesCommand& options, const accel::DeviceList& list) {
  std::vector<DeviceSpeed> devices;
  for (const size_t index : ChosenDevices(options, list)) {
    devices.push_back({index, list.devices[index], std::nullopt, {}});
    if (options.limits_only) continue;
    devices.back().rates = MeasureDevice(index, {}, accel::UsersProgramsFolder());
    devices.back().batches = MeasureBatches(index, {}, accel::UsersProgramsFolder());
  }
  return devices;
}

int ShowDevices(const DevicesCommand& options) {
  const accel::DeviceList list = accel::ListDevices();
  const std::vector<DeviceSpeed> devices = LookAt(options, list);
  if (options.json) {
    nlohmann::ordered_json entries = nlohmann::ordered_json::array();
    for (const DeviceSpeed& device : devices) entries.push_back(DeviceSpeedJson(device));
    const nlohmann::ordered_json why_none =
        list.devices.empty() ? nlohmann::ordered_json(list.why_none) : nlohmann::ordered_json();
    WriteOutput(DumpJson({{"devices", entries}, {"why_none", why_none}}));
    return kExitDone;
  }
  if (list.devices.empty()) {
    PrintNotice(fmt::format("There is no device: {}.\n", list.why_none));
    return kExitDone;
  }
  std::string text;
  for (const DeviceSpeed& device : devices) {
    text += (text.empty() ? "" : "\n") + DeviceText(device);
  }
  if (text.empty()) PrintNotice("This choice means no device.\n");
  WriteOutput(text);
  return kExitDone;
}

}  // namespace

void AddDevicesCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<DevicesCommand>();
  CLI::App* command =
      app.add_subcommand("devices", "Show the devices beside the processor and measure them");
  command
      ->add_option("--device", options->device,
                   "only this one: auto (the first that is not a processor) or a number")
      ->option_text("INDEX");
  command->add_flag("--limits", options->limits_only, "show what they say of themselves only");
  command->add_flag("--json", options->json, "print one JSON document");
  command->footer(
      "Devices are found through OpenCL, which a driver of the device brings. Measuring takes\n"
      "some seconds each: memory reads, Q4_0 weights times one token and times 128 (prompts),\n"
      "copies both ways, a kernel that adds one number, and weights times 1 to 256 tokens beside\n"
      "the processor.");
  command->callback([options, &action] { action = [options] { return ShowDevices(*options); }; });
}

}  // namespace hearth::cli
