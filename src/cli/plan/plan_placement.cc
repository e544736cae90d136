#include "cli/plan/plan_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/models/cache_folder.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "import/open_model.h"
#include "ops/compute.h"
#include "ops/probe.h"
#include "planner/doctor/hardware.h"
#include "prepare/synth/weight_generator.h"
#include "sparsity/profile.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGigabyte = 1e9;
constexpr double kMaxGigabytes = 1e6;  // per second

// Options that mean nothing without --device-memory.
constexpr std::array kOptions = {"--device-bandwidth",
                                 "--link-bandwidth",
                                 "--link-latency",
                                 "--memory-bandwidth",
                                 "--flash-bandwidth",
                                 "--dense",
                                 "--profile",
                                 "--active",
                                 "--skew",
                                 "--quant"};
// Reads of single neurons that are in flight at once.
constexpr int kFlashDepth = 32;

bool IsShape(const std::string& model) {
  const std::vector<std::string> names = PlannedShapeNames();
  return model.ends_with(".json") || std::find(names.begin(), names.end(), model) != names.end();
}

PlacementModel ReadModel(const std::string& model, const PlacementArguments& arguments) {
  if (IsShape(model)) {
    if (!arguments.profile.empty()) {
      throw UsageError("--profile: a shape has no neurons of its own; name the model's file");
    }
    return AsUsage([&] {
      return PlacementModelOf(ResolvePlannedShape(model), arguments.quant, arguments.assumed);
    });
  }
  const GgufFile file = OpenModel(model, arguments.activation);
  WarnOfActivation(file);
  if (arguments.profile.empty()) return PlacementModelOf(file, nullptr);
  const ModelProfile profile = LoadProfile(arguments.profile);
  return PlacementModelOf(file, &profile);
}

// The bandwidth of this machine's memory: the median of a few passes on all threads.
double MeasuredBandwidth() {
  constexpr size_t kBytes = size_t{512} << 20;
  constexpr int kPasses = 5;
  ProgressLine progress("measuring memory", ProgressUnit::kShare);
  Compute compute("auto", AvailableCpus());
  const std::vector<std::byte> memory(kBytes, std::byte{1});
  std::vector<double> rates;
  for (int i = 0; i < kPasses; ++i) {
    rates.push_back(ProbeRead(compute, memory).PerSecond());
    progress.Update(static_cast<uint64_t>(i + 1), kPasses);
  }
  std::nth_element(rates.begin(), rates.begin() + kPasses / 2, rates.end());
  return rates[kPasses / 2];
}

// Returns what doctor measured of this machine, or nothing.
std::optional<HardwareProfile> MeasuredHardware() {
  const std::string path = SavedHardwarePath();
  if (path.empty() || !std::filesystem::exists(path)) return std::nullopt;
  HardwareProfile profile = ReadHardware(path);
  CheckIsThisMachine(profile, path);
  return profile;
}

// Returns the rates of the first device that was measured, or nothing.
std::optional<DeviceRateSpreads> MeasuredDevice(const std::optional<HardwareProfile>& hardware) {
  if (!hardware) return std::nullopt;
  for (const DeviceSpeed& device : hardware->devices) {
    if (device.rates) return device.rates;
  }
  return std::nullopt;
}

// Takes what is given, and the rest from what doctor measured: a device reads weights as fast as a
// product with one token does, and the link is as fast as its slower direction.
PlacementMachine MachineOf(const PlacementArguments& arguments) {
  PlacementMachine machine = {.device_bytes = *arguments.device_bytes, .link_seconds = 10e-6};
  if (!arguments.device_gb_s || !arguments.link_gb_s) {
    const std::optional<DeviceRateSpreads> rates = MeasuredDevice(MeasuredHardware());
    if (!rates) {
      throw UsageError(
          "--device-memory needs --device-bandwidth and --link-bandwidth where 'hearth doctor' "
          "has measured no device");
    }
    machine.device_bytes_per_s = rates->matvec_bytes_per_s.median;
    machine.link_bytes_per_s =
        std::min(rates->upload_bytes_per_s.median, rates->download_bytes_per_s.median);
    machine.link_seconds = rates->launch_seconds.median;
  }
  if (arguments.device_gb_s) machine.device_bytes_per_s = *arguments.device_gb_s * kGigabyte;
  if (arguments.link_gb_s) machine.link_bytes_per_s = *arguments.link_gb_s * kGigabyte;
  if (arguments.link_us) machine.link_seconds = *arguments.link_us * 1e-6;
  return machine;
}

// Of one layer, all its FFNs together.
struct LayerShare {
  int64_t device_neurons = 0;
  int64_t neurons = 0;
  double device_impact = 0;
  double impact = 0;

  bool operator==(const LayerShare&) const = default;
};

std::vector<LayerShare> LayerShares(const PlacedModel& placed) {
  std::vector<LayerShare> layers(static_cast<size_t>(placed.problem.num_layers()));
  for (size_t f = 0; f < placed.problem.ffns.size(); ++f) {
    const PlacementFfn& ffn = placed.problem.ffns[f];
    LayerShare& layer = layers[static_cast<size_t>(ffn.layer)];
    layer.device_neurons += placed.placement.device_neurons[f];
    layer.neurons += ffn.neurons;
    for (size_t b = 0; b < ffn.impacts.size(); ++b) {
      const auto begin = static_cast<int64_t>(b) * kPlacementBatch;
      layer.impact += ffn.impacts[b];
      if (begin < placed.placement.device_neurons[f]) layer.device_impact += ffn.impacts[b];
    }
  }
  return layers;
}

double ShareOf(double part, double whole) { return whole > 0 ? part / whole : 0; }

double ToMs(double seconds) { return 1000 * seconds; }

Json TimeJson(const TokenTime& time) {
  return {{"dense", ToMs(time.dense_seconds)},
          {"ffn", ToMs(time.ffn_seconds)},
          {"sync", ToMs(time.sync_seconds)},
          {"total", ToMs(time.total())}};
}

// The neurons that stay on flash; null where none do.
Json FlashJson(const PlacementMachine& machine, const PlacedModel& placed) {
  if (placed.flash_bytes == 0) return nullptr;
  return {{"gb_s", machine.flash_bytes_per_s / kGigabyte},
          {"neurons_bytes", placed.flash_bytes},
          {"activations", ShareOf(placed.flash_impact, placed.placement.all_impact)}};
}

Json PlacementJson(const PlacementModel& model, const PlacementMachine& machine,
                   const PlacedModel& placed) {
  const Placement& placement = placed.placement;
  const auto least = LeastNeurons(placed.problem);
  Json layers = Json::array();
  for (size_t f = 0; f < placed.problem.ffns.size(); ++f) {
    const auto layer = static_cast<size_t>(placed.problem.ffns[f].layer);
    if (layer == layers.size()) layers.push_back({{"device_neurons", Json::array()}});
    layers[layer]["device_neurons"].push_back(placement.device_neurons[f]);
  }
  const uint64_t dense = model.dense_bytes;
  return {{"model", model.name},
          {"rates", model.rates_are_assumed ? "assumed" : "measured"},
          {"batch_neurons", kPlacementBatch},
          {"neuron_bytes", model.neuron_bytes},
          {"neurons_per_ffn", model.neurons},
          {"device",
           {{"memory_bytes", machine.device_bytes},
            {"gb_s", machine.device_bytes_per_s / kGigabyte},
            {"neurons_bytes", placement.device_bytes},
            {"dense_bytes", placed.dense_on_device ? dense : 0}}},
          {"host",
           {{"memory_bytes", machine.host_bytes ? Json(*machine.host_bytes) : Json(nullptr)},
            {"gb_s", machine.host_bytes_per_s / kGigabyte},
            {"neurons_bytes", placement.host_bytes},
            {"dense_bytes", (placed.dense_on_device ? 0 : dense) + model.embedding_bytes}}},
          {"flash", FlashJson(machine, placed)},
          {"sync_ms", ToMs(placed.problem.sync_seconds)},
          {"least_neurons", least ? Json(*least) : Json(nullptr)},
          {"bound", PlacementBoundName(placement.bound)},
          {"device_activations", ShareOf(placement.impact, placement.all_impact)},
          {"token_ms", TimeJson(placed.time)},
          {"decode_tok_s", 1 / placed.time.total()},
          {"host_only",
           {{"token_ms", ToMs(placed.host_time.total())},
            {"decode_tok_s", 1 / placed.host_time.total()}}},
          {"layers", std::move(layers)}};
}

std::string LayersText(const PlacedModel& placed) {
  const std::vector<LayerShare> layers = LayerShares(placed);
  std::string text = fmt::format("{:<10}{:>18}{:>12}{:>14}\n", "layers", "neurons on device",
                                 "of them", "activations");
  for (size_t first = 0; first < layers.size();) {
    size_t end = first + 1;
    while (end < layers.size() && layers[end] == layers[first]) ++end;
    const LayerShare& layer = layers[first];
    text += fmt::format(
        "{:<10}{:>18}{:>11.1f}%{:>13.1f}%\n",
        end == first + 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1),
        layer.device_neurons,
        100 *
            ShareOf(static_cast<double>(layer.device_neurons), static_cast<double>(layer.neurons)),
        100 * ShareOf(layer.device_impact, layer.impact));
    first = end;
  }
  return text;
}

const char* BoundText(PlacementBound bound) {
  switch (bound) {
    case PlacementBound::kNone:
      return "nothing: the device has all neurons";
    case PlacementBound::kDeviceMemory:
      return "the device's memory: no further 64 neurons fit";
    case PlacementBound::kCommunication:
      return "communication: there is room left, but too little for another layer to be worth its "
             "synchronization";
  }
  return "?";
}

// How fast flash delivers single neurons; 0 where that is not known.
double FlashBytesPerSecond(const PlacementModel& model, const PlacementArguments& arguments) {
  if (arguments.flash_gb_s) return *arguments.flash_gb_s * kGigabyte;
  const std::optional<HardwareProfile> hardware = MeasuredHardware();
  return hardware ? hardware->IoBytesPerSecond(model.neuron_bytes, kFlashDepth) : 0;
}

PlacedModel PlaceWithOrWithoutFlash(const PlacementModel& model, const PlacementMachine& machine,
                                    DensePlace dense) {
  try {
    return PlaceModel(model, machine, dense);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfBudget || machine.flash_bytes_per_s > 0) throw;
    throw Error(
        ErrorCode::kOutOfBudget, error.where(),
        fmt::format("{}; neurons may stay on flash where 'hearth doctor' has measured it or "
                    "--flash-bandwidth says how fast it is",
                    error.problem()));
  }
}

CLI::Option* AddRate(CLI::App& command, const char* name, std::optional<double>& rate,
                     const char* what) {
  return command.add_option(name, rate, what)
      ->option_text("GB/s")
      ->check(NumberIn(1e-3, kMaxGigabytes));
}

void AddAssumptions(CLI::App& command, PlacementArguments& arguments) {
  command
      .add_option("--active", arguments.assumed.active,
                  "of shapes: mean share of neurons that a token activates (0.1)")
      ->option_text("SHARE");
  command
      .add_option("--skew", arguments.assumed.skew,
                  "of shapes: share of neurons with 80% of activations (0.28)")
      ->option_text("SHARE");
  command
      .add_option_function<std::string>(
          "--quant",
          [&arguments](const std::string& name) {
            const std::optional<DType> type = DTypeFromName(name);
            if (!type || !CanSynthesize(*type)) {
              throw UsageError("--quant: expected f32, f16, bf16, q4_0, q4_1 or q8_0, found '" +
                               Printable(name) + "'");
            }
            arguments.quant = *type;
          },
          "of shapes: type of the matrices (q4_0)")
      ->option_text("TYPE");
}

}  // namespace

std::string PlacementText(const PlacementModel& model, const PlacementMachine& machine,
                          const PlacedModel& placed, bool measured) {
  const Placement& placement = placed.placement;
  const auto least = LeastNeurons(placed.problem);
  std::string text =
      fmt::format("{}: {} layers of {} neurons, {} bytes each; rates {}\n", model.name,
                  model.num_layers, model.neurons * model.ffns_per_layer, model.neuron_bytes,
                  model.rates_are_assumed ? "assumed (a power law)" : "measured");
  text += fmt::format(
      "device {} at {:.1f} GB/s, host {}at {:.1f} GB/s{}, synchronization {:.1f} us per layer\n",
      FormatSize(machine.device_bytes), machine.device_bytes_per_s / kGigabyte,
      machine.host_bytes ? FormatSize(*machine.host_bytes) + " " : "",
      machine.host_bytes_per_s / kGigabyte, measured ? " (measured here)" : "",
      1e6 * placed.problem.sync_seconds);
  text +=
      least ? fmt::format("the device helps a layer if it computes at least {} of its neurons\n\n",
                          *least)
            : std::string("the device computes no neuron faster than the host\n\n");
  text += LayersText(placed);
  text += fmt::format("\n{:<14}{:>14}{:>14}\n", "", "device", "host");
  text += fmt::format("{:<14}{:>14}{:>14}\n", "neurons", FormatSize(placement.device_bytes),
                      FormatSize(placement.host_bytes));
  const std::string dense = FormatSize(model.dense_bytes);
  text += fmt::format("{:<14}{:>14}{:>14}   attention, predictors, output\n", "dense",
                      placed.dense_on_device ? dense : "-", placed.dense_on_device ? "-" : dense);
  text += fmt::format("{:<14}{:>13.1f}%{:>13.1f}%\n", "activations",
                      100 * ShareOf(placement.impact, placement.all_impact),
                      100 - 100 * ShareOf(placement.impact, placement.all_impact));
  if (placed.flash_bytes > 0) {
    text += fmt::format(
        "flash         {} of the host's neurons stay there, at {:.2f} GB/s: {:.1f}% of "
        "activations\n",
        FormatSize(placed.flash_bytes), machine.flash_bytes_per_s / kGigabyte,
        100 * ShareOf(placed.flash_impact, placement.all_impact));
  }
  text += "\n";
  text += fmt::format("bound by     {}\n", BoundText(placement.bound));
  text += fmt::format(
      "a token      {:.2f} ms (dense {:.2f}, neurons {:.2f}, synchronization {:.2f}): {:.2f} "
      "tok/s\n"
      "without it   {:.2f} ms: {:.2f} tok/s\n",
      ToMs(placed.time.total()), ToMs(placed.time.dense_seconds), ToMs(placed.time.ffn_seconds),
      ToMs(placed.time.sync_seconds), 1 / placed.time.total(), ToMs(placed.host_time.total()),
      1 / placed.host_time.total());
  return text;
}

PlacementMachine PlacementMachineOf(const PlacementArguments& arguments) {
  PlacementMachine machine = MachineOf(arguments);
  machine.host_bytes_per_s =
      arguments.memory_gb_s ? *arguments.memory_gb_s * kGigabyte : MeasuredBandwidth();
  return machine;
}

bool NamesShape(const std::string& model) {
  return IsShape(model) && (model.ends_with(".json") || !std::filesystem::exists(model));
}

void AddPlacementOptions(CLI::App& command, PlacementArguments& arguments) {
  AddSizeOption(command, "--device-memory", arguments.device_bytes,
                "place neurons on a device (a GPU) that has so much memory for weights, like 24G");
  AddRate(command, "--device-bandwidth", arguments.device_gb_s,
          "of the device's memory (what doctor measured)");
  AddRate(command, "--link-bandwidth", arguments.link_gb_s,
          "between host and device (what doctor measured)");
  command
      .add_option("--link-latency", arguments.link_us,
                  "microseconds that starting a transfer takes (what doctor measured; 10 where "
                  "both bandwidths "
                  "are given)")
      ->option_text("US")
      ->check(NumberIn(0.0, 1e6));
  command
      .add_option("--memory-bandwidth", arguments.memory_gb_s,
                  "of the host's memory (measured here)")
      ->option_text("GB/s")
      ->check(NumberIn(1e-3, kMaxGigabytes));
  AddRate(command, "--flash-bandwidth", arguments.flash_gb_s,
          "at which single neurons are read, where memory has no room for all (what doctor "
          "measured)");
  command
      .add_option_function<std::string>(
          "--dense",
          [&arguments](const std::string& name) {
            const std::optional<DensePlace> place = DensePlaceFromName(name);
            if (!place) {
              throw UsageError("--dense: expected auto, device or host, found '" + Printable(name) +
                               "'");
            }
            arguments.dense = *place;
          },
          "where attention, predictors and output lie: auto (the faster), device, host")
      ->option_text("WHERE");
  command.add_option("--profile", arguments.profile, "how often neurons fire, of hearth profile")
      ->option_text("FILE")
      ->check(NotEmpty());
  AddAssumptions(command, arguments);
}

void CheckPlacementUsage(const CLI::App& command, const PlacementArguments& arguments) {
  for (const char* name : kOptions) {
    if (command.count(name) > 0 && !arguments.device_bytes) {
      throw UsageError(fmt::format("{} has no effect without --device-memory", name));
    }
  }
  if (!arguments.device_bytes) return;
  const std::string model = command.get_option("MODEL")->as<std::string>();
  if (IsShape(model)) return;
  for (const char* name : {"--active", "--skew", "--quant"}) {
    if (command.count(name) > 0) {
      throw UsageError(fmt::format("{}: MODEL is no shape, it has its own", name));
    }
  }
}

int PlanPlacement(const std::string& model, std::optional<uint64_t> host_bytes,
                  const PlacementArguments& arguments, bool json) {
  const PlacementModel sizes = ReadModel(model, arguments);
  PlacementMachine machine = PlacementMachineOf(arguments);
  machine.host_bytes = host_bytes;
  machine.flash_bytes_per_s = FlashBytesPerSecond(sizes, arguments);
  const PlacedModel placed = PlaceWithOrWithoutFlash(sizes, machine, arguments.dense);
  WriteOutput(json ? DumpJson(PlacementJson(sizes, machine, placed))
                   : PlacementText(sizes, machine, placed, !arguments.memory_gb_s));
  return kExitDone;
}

}  // namespace hearth::cli
