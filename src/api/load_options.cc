#include "api/load_options.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/load/ffn_mode.h"
#include "engine/load/obey_plan.h"
#include "engine/streaming_choices.h"

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

[[noreturn]] void Refuse(std::string_view field, const std::string& expected,
                         const std::string& found) {
  throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{field}, "value", expected, found);
}

void RefuseIdle(const std::optional<IdleSetting>& idle) {
  if (!idle) return;
  const std::string with = idle->other.empty() ? "" : " with " + idle->other;
  throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{idle->field},
                      "it has no effect" + with + ": " + idle->why);
}

// What is said of each of StreamingWords().
const std::string& WordOf(const Streaming& streaming, std::string_view field) {
  if (field == "pipeline") return streaming.pipeline;
  if (field == "reads") return streaming.reads;
  if (field == "io") return streaming.io;
  if (field == "io_thread") return streaming.io_thread;
  if (field == "cache_policy") return streaming.cache_policy;
  return streaming.lookahead;
}

// The names of what is set, as FindContradiction takes them.
std::vector<std::string> GivenFields(const Streaming& streaming) {
  std::vector<std::string> given;
  for (const StreamingWord& word : StreamingWords()) {
    if (!WordOf(streaming, word.field).empty()) given.emplace_back(word.field);
  }
  if (streaming.merge_gap_bytes) given.emplace_back("merge_gap");
  if (streaming.pinned_share) given.emplace_back("pinned");
  return given;
}

StreamingOptions StreamingOf(const Streaming& streaming) {
  StreamingOptions options;
  for (const StreamingWord& word : StreamingWords()) {
    const std::string& text = WordOf(streaming, word.field);
    if (text.empty() || word.take(options, text)) continue;
    Refuse(word.field, word.values, "'" + Printable(text) + "'");
  }
  if (streaming.merge_gap_bytes) {
    const int64_t gap = *streaming.merge_gap_bytes;
    const bool is_good = gap < 0 ? TakeMergeGap(options, std::nullopt)
                                 : TakeMergeGap(options, static_cast<uint64_t>(gap));
    if (!is_good) Refuse("merge_gap", "at most 1 MiB", std::to_string(gap) + " bytes");
  }
  if (streaming.pinned_share) {
    const double share = *streaming.pinned_share;
    if (!(share >= 0 && share <= 1)) Refuse("pinned", "0 to 1", fmt::format("{}", share));
    options.pinned_share = share;
  }
  RefuseIdle(FindContradiction(options, GivenFields(streaming)));
  return options;
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
      options.streaming == defaults.streaming && options.device_memory_bytes == 0 &&
      options.device_neurons == 0) {
    return;
  }
  throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"plan"},
                      "it says how much memory, which threads, context, mode, KV cache, kernels, "
                      "streaming and neurons of a device: give none of them");
}

// What a plan says nothing of.
void AddTheRest(const LoadOptions& options, EngineOptions& engine) {
  const auto activations = TileActivationsFromName(options.activations);
  if (!activations) {
    throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"activations"},
                        "name of activations", kTileActivationsText,
                        "'" + Printable(options.activations) + "'");
  }
  engine.activations = *activations;
  if (options.kv_memory_bytes > 0) engine.kv_memory_bytes = options.kv_memory_bytes;
  engine.kv_folder = options.kv_folder;
  engine.adapters = AdaptersOf(options);
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
  engine.may_shorten_passes = true;
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
  engine.streaming = StreamingOf(options.streaming);
  AddTheRest(options, engine);
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
  AddTheRest(options, engine);
  TakeDevice(options, engine);
  return engine;
}

void CheckLoaded(const LoadOptions& options, const Engine& engine) {
  RefuseIdle(FindIdleSetting(engine, GivenFields(options.streaming)));
}

std::vector<std::string> DoubtsAbout(const Engine& engine) {
  std::vector<std::string> doubts;
  const GgufFile file = engine.model().Reopen();
  const std::string activation = ActivationWarning(file.path(), FindActivationHint(file));
  if (!activation.empty()) doubts.push_back(activation + ": the option 'activation' says it");
  const std::vector<std::string>& of_tokenizer = engine.model().tokenizer().warnings();
  doubts.insert(doubts.end(), of_tokenizer.begin(), of_tokenizer.end());
  return doubts;
}

}  // namespace hearth::api
