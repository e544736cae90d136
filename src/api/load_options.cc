#include "api/load_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/load/ffn_mode.h"
#include "engine/streaming_choices.h"

namespace hearth::api {
namespace {

[[noreturn]] void Refuse(const char* field, const std::string& expected, const std::string& found) {
  throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{field}, "value", expected, found);
}

std::string Quoted(const std::string& word) { return "'" + Printable(word) + "'"; }

// What Streaming says of each of StreamingWords().
const std::string& WordOf(const Streaming& streaming, std::string_view field) {
  if (field == "pipeline") return streaming.pipeline;
  if (field == "reads") return streaming.reads;
  if (field == "io") return streaming.io;
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

StreamingOptions ToEngine(const Streaming& streaming) {
  StreamingOptions options;
  for (const StreamingWord& word : StreamingWords()) {
    const std::string& text = WordOf(streaming, word.field);
    if (!text.empty() && !word.take(options, text)) Refuse(word.field, word.values, Quoted(text));
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
  return options;
}

DeviceRequest ToEngine(const DeviceOptions& device) {
  DeviceRequest request;
  request.choice = accel::ParseDeviceChoice(device.device);
  request.may_do_without = request.choice.kind == accel::DeviceChoice::Kind::kAuto;
  if (device.memory_bytes > 0) request.memory_bytes = device.memory_bytes;
  if (device.neurons != 0) request.neurons = device.neurons;
  request.programs_folder = device.cache_folder;
  return request;
}

KvCodec KvOf(const std::string& name) {
  const std::optional<KvCodec> kv = KvCodecFromName(name);
  if (kv) return *kv;
  throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"kv"}, "type of the KV cache",
                      kKvCodecNames, Quoted(name));
}

std::optional<FfnMode> ModeOf(const std::string& name) {
  const std::optional<FfnMode> mode = FfnModeFromName(name);
  if (mode || name == "auto") return mode;
  throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{"mode"}, "name of a mode",
                      "auto, dense, gated or predicted", Quoted(name));
}

void RefuseIdle(const std::optional<IdleSetting>& idle) {
  if (!idle) return;
  const std::string with = idle->other.empty() ? "" : " with " + idle->other;
  throw hearth::Error(hearth::ErrorCode::kInvalidArgument, Field{idle->field},
                      "it has no effect" + with + ": " + idle->why);
}

}  // namespace

std::optional<GivenActivation> ActivationOf(const LoadOptions& options) {
  if (options.activation.empty()) return std::nullopt;
  return ParseActivation(options.activation);
}

std::optional<ChatFormat> ChatFormatOf(const LoadOptions& options) {
  if (options.chat_format.empty()) return std::nullopt;
  return ParseChatFormat(options.chat_format);
}

void AddBesidePlan(const LoadOptions& options, EngineOptions& engine) {
  if (options.kv_memory_bytes > 0) engine.kv_memory_bytes = options.kv_memory_bytes;
  engine.kv_folder = options.kv_folder;
  for (const AdapterFile& adapter : options.adapters) {
    engine.adapters.push_back({adapter.path, adapter.scale});
  }
}

EngineOptions ToEngine(const LoadOptions& options) {
  EngineOptions engine;
  if (options.memory_bytes > 0) engine.memory_bytes = options.memory_bytes;
  engine.threads = options.threads;
  engine.context = options.context;
  engine.activation = ActivationOf(options);
  engine.isa = options.isa;
  engine.kv_codec = KvOf(options.kv);
  engine.mode = ModeOf(options.mode);
  engine.streaming = ToEngine(options.streaming);
  engine.device = ToEngine(options.device);
  AddBesidePlan(options, engine);
  return engine;
}

void CheckPlanIsAlone(const LoadOptions& options) {
  const LoadOptions defaults;
  if (options.memory_bytes == defaults.memory_bytes && options.threads == defaults.threads &&
      options.context == defaults.context && options.mode == defaults.mode &&
      options.kv == defaults.kv && options.isa == defaults.isa &&
      options.streaming == defaults.streaming && options.device == defaults.device) {
    return;
  }
  throw hearth::Error(
      hearth::ErrorCode::kInvalidArgument, Field{"plan"},
      "it says how much memory, which threads, context, mode, KV cache, kernels, streaming and "
      "device: give none of them");
}

void CheckBeforeLoading(const LoadOptions& options) {
  ChatFormatOf(options);
  RefuseIdle(FindContradiction(ToEngine(options.streaming), GivenFields(options.streaming)));
  const DeviceOptions& device = options.device;
  if (device.device == DeviceOptions().device) {
    if (device.memory_bytes > 0) {
      RefuseIdle(IdleSetting{"device_memory", "", "no device was asked for"});
    }
    if (device.neurons != 0) {
      RefuseIdle(IdleSetting{"device_neurons", "", "no device was asked for"});
    }
  }
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
  const std::string& why = engine.device().why_none;
  if (!why.empty()) doubts.push_back("the processor computes alone: " + why);
  return doubts;
}

}  // namespace hearth::api
