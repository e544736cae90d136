#include "api/load_options.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/load/ffn_mode.h"
#include "engine/load/obey_plan.h"

namespace hearth::api {
namespace {

std::optional<GivenActivation> GivenOf(const LoadOptions& options) {
  if (options.activation.empty()) return std::nullopt;
  return ParseActivation(options.activation);
}

std::vector<AdapterOption> AdaptersOf(const LoadOptions& options) {
  std::vector<AdapterOption> adapters;
  for (const AdapterFile& adapter : options.adapters) {
    adapters.push_back({adapter.path, adapter.scale});
  }
  return adapters;
}

// `planned`: a plan says how much of it is used.
DeviceRequest DeviceOf(const LoadOptions& options, bool planned) {
  DeviceRequest request;
  request.choice = accel::ParseDeviceChoice(options.device);
  if (options.device_memory_bytes > 0) request.memory_bytes = options.device_memory_bytes;
  if (options.device_neurons != 0) request.neurons = options.device_neurons;
  const bool is_none = request.choice.kind == accel::DeviceChoice::Kind::kNone;
  if (is_none && (request.memory_bytes || request.neurons)) {
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"device"},
                        "none is used, so that device_memory and device_neurons have no effect");
  }
  request.may_do_without = !planned && request.choice.kind == accel::DeviceChoice::Kind::kAuto;
  request.programs_folder = accel::UsersProgramsFolder();
  return request;
}

void CheckPlanIsAlone(const LoadOptions& options) {
  const LoadOptions defaults;
  if (options.memory_bytes == defaults.memory_bytes && options.threads == defaults.threads &&
      options.context == defaults.context && options.mode == defaults.mode &&
      options.kv == defaults.kv && options.isa == defaults.isa &&
      options.device_memory_bytes == 0 && options.device_neurons == 0) {
    return;
  }
  throw hearth::Error(
      hearth::ErrorCode::kInvalidArgument, Field{"plan"},
      "it says how much memory, which threads, context, mode, KV cache, kernels and neurons of a "
      "device: give none of them");
}

// The device that a plan is obeyed on.
void TakeDevice(const LoadOptions& options, EngineOptions& engine) {
  DeviceRequest request = DeviceOf(options, true);
  request.planned = engine.device.planned;
  if (request.is_wanted() && !request.planned) {
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"device"},
                        "it has no effect with this plan, which uses none");
  }
  engine.device = std::move(request);
}

}  // namespace

EngineOptions EngineOptionsOf(const LoadOptions& options) {
  EngineOptions engine;
  if (options.memory_bytes > 0) engine.memory_bytes = options.memory_bytes;
  engine.threads = options.threads;
  engine.context = options.context;
  engine.activation = GivenOf(options);
  engine.isa = options.isa;
  const std::optional<KvCodec> kv = KvCodecFromName(options.kv);
  if (!kv) {
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"kv"}, "type of the KV cache",
                        kKvCodecNames, "'" + Printable(options.kv) + "'");
  }
  engine.kv_codec = *kv;
  if (options.kv_memory_bytes > 0) engine.kv_memory_bytes = options.kv_memory_bytes;
  engine.kv_folder = options.kv_folder;
  engine.adapters = AdaptersOf(options);
  engine.device = DeviceOf(options, false);
  if (options.mode != "auto") {
    engine.mode = FfnModeFromName(options.mode);
    if (!engine.mode) {
      throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"mode"}, "name of a mode",
                          "auto, dense, gated or predicted", "'" + Printable(options.mode) + "'");
    }
  }
  return engine;
}

EngineOptions PlannedOptions(const std::string& path, const LoadOptions& options) {
  CheckPlanIsAlone(options);
  EngineOptions engine = ObeyPlan(options.plan, path, GivenOf(options));
  engine.adapters = AdaptersOf(options);
  TakeDevice(options, engine);
  return engine;
}

}  // namespace hearth::api
