#include "cli/options/device_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/units.h"
#include "cli/help_format.h"
#include "cli/models/cache_folder.h"
#include "cli/options/option_values.h"
#include "cli/screen/output.h"
#include "planner/doctor/hardware.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTraceProcess = 1;
constexpr int64_t kMostTokens = int64_t{1} << 30;

int TrackOf(accel::TraceSide side) { return side == accel::TraceSide::kDevice ? 2 : 1; }

// Names a track of the trace.
Json TrackJson(accel::TraceSide side, const std::string& name) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", kTraceProcess},
          {"tid", TrackOf(side)},
          {"args", {{"name", name}}}};
}

Json TraceJson(const accel::DeviceTrace& trace, const std::string& device) {
  const std::vector<accel::TraceSpan>& spans = trace.spans();
  double start = spans.empty() ? 0 : std::numeric_limits<double>::max();
  for (const accel::TraceSpan& span : spans) start = std::min(start, span.begin_seconds);
  Json events = {TrackJson(accel::TraceSide::kProcessor, "processor"),
                 TrackJson(accel::TraceSide::kDevice, device)};
  for (const accel::TraceSpan& span : spans) {
    events.push_back({{"name", span.what},
                      {"ph", "X"},
                      {"pid", kTraceProcess},
                      {"tid", TrackOf(span.side)},
                      {"ts", 1e6 * (span.begin_seconds - start)},
                      {"dur", 1e6 * (span.end_seconds - span.begin_seconds)},
                      {"args", {{"layer", span.ffn}, {"tokens", span.tokens}}}});
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
}

// Parses the value of an option: auto (returns nothing), never (0), or at least `least` tokens.
std::optional<int64_t> ParseTokens(const char* option, const std::string& text, int64_t least) {
  if (text == "auto") return std::nullopt;
  if (text == "never") return 0;
  int64_t tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc() || end != text.data() + text.size() || tokens < least ||
      tokens > kMostTokens) {
    throw UsageError(
        fmt::format("{}: expected auto, never or at least {} tokens and at most {}, "
                    "found '{}'",
                    option, least, kMostTokens, Printable(text)));
  }
  return tokens;
}

// What the saved profile of this machine says of the device that is chosen: 0 where that is
// nothing, and, where the user asked, why.
int64_t MeasuredPromptTokens(const DeviceArguments& arguments) {
  const auto say = [&](const std::string& why) {
    if (arguments.says_prompts) PrintSentence("prompts are not uploaded for: " + why);
    return 0;
  };
  const accel::DeviceList list = accel::ListDevices();
  const std::optional<size_t> chosen = accel::ChooseDevice(arguments.request.choice, list);
  const std::string path = SavedHardwarePath();
  if (!chosen || path.empty() || !std::filesystem::exists(path)) {
    return say("'hearth doctor' has not measured this machine");
  }
  HardwareProfile hardware;
  try {
    hardware = ReadHardware(path);
  } catch (const Error& error) {  // of another version, or damaged: nobody needs it to run
    return say(error.what());
  }
  for (const DeviceSpeed& device : hardware.devices) {
    if (device.index != *chosen || device.info.name != list.devices[*chosen].name) continue;
    if (device.batches.empty() || !device.rates) break;
    const std::optional<int64_t> tokens = UploadTokens(
        device.batches, {.read_bytes_per_s = UploadReadRate(hardware),
                         .upload_bytes_per_s = device.rates->upload_bytes_per_s.median});
    if (!tokens) return say("'hearth doctor' found that the processor is faster at any length");
    return std::max(*tokens, PassShape::kPrefillTokens);
  }
  return say(fmt::format("'hearth doctor --device {}' measures when that pays", *chosen));
}

// For experiments.
void AddExperimentOptions(CLI::App& command, DeviceArguments& arguments) {
  DeviceRequest& request = arguments.request;
  command
      .add_option_function<int64_t>(
          "--device-neurons", [&request](int64_t neurons) { request.neurons = neurons; },
          "neurons of each layer that go to the device (as many as fit)")
      ->option_text("N")
      ->group(kExperimentGroup)
      ->check(WholeIn(1, int64_t{1} << 31));
  command
      .add_option_function<int64_t>(
          "--device-layers", [&request](int64_t layers) { request.matrices.layers = layers; },
          "first layers of a model that is not packed whose attention and FFN, or the one beside "
          "their experts, go to the device; then nothing else but --device-experts (as many as "
          "fit)")
      ->option_text("N")
      ->group(kExperimentGroup)
      ->check(WholeIn(0, int64_t{1} << 31));
  command
      .add_option_function<int64_t>(
          "--device-experts", [&request](int64_t experts) { request.matrices.experts = experts; },
          "first experts of each layer that go to the device; then nothing else but "
          "--device-layers (as many as fit)")
      ->option_text("N")
      ->group(kExperimentGroup)
      ->check(WholeIn(0, int64_t{1} << 31));
  command
      .add_option(
          "--trace-device", arguments.trace_path,
          "file for what the device and the processor did over time (Chrome's trace format)")
      ->option_text("FILE")
      ->group(kExperimentGroup)
      ->check(NotEmpty());
}

}  // namespace

void AddDeviceOptions(CLI::App& command, DeviceArguments& arguments) {
  DeviceRequest& request = arguments.request;
  command
      .add_option_function<std::string>(
          "--device",
          [&request](const std::string& text) {
            request.choice = AsUsage([&] { return accel::ParseDeviceChoice(text); });
          },
          "device that computes a part of the model while the processor computes the rest: none, a "
          "number of 'hearth devices', or auto (the first that is not a processor, if it can be "
          "used) (none)")
      ->option_text("auto|none|INDEX")
      ->group(kMemoryGroup);
  AddSizeOption(command, "--device-memory", request.memory_bytes,
                "most memory of the device to use; as much of the model goes there as fits: of a "
                "packed one the hottest neurons of each layer (7/8 of a device's own memory)")
      ->group(kMemoryGroup);
  command
      .add_option_function<std::string>(
          "--device-kv",
          [&arguments](const std::string& text) {
            arguments.says_kv = true;
            arguments.request.kv_tokens = ParseTokens("--device-kv", text, 1);
          },
          "tokens whose keys and values the device has too, of layers whose attention is there: it "
          "attends over them; auto takes those of all sessions, or what fits into a quarter of its "
          "memory (auto)")
      ->option_text("auto|never|TOKENS")
      ->group(kMemoryGroup);
  command
      .add_option_function<std::string>(
          "--device-prompts",
          [&arguments](const std::string& text) {
            arguments.says_prompts = true;
            arguments.prompt_tokens =
                ParseTokens("--device-prompts", text, PassShape::kPrefillTokens);
          },
          "the device computes all of a prompt when a pass has at least TOKENS of its tokens, and "
          "uploads the matrices it lacks; auto takes the length at which 'hearth doctor' found "
          "this to be faster (auto)")
      ->option_text("auto|never|TOKENS")
      ->group(kMemoryGroup);
  AddExperimentOptions(command, arguments);
}

void CheckDeviceUsage(const DeviceArguments& arguments) {
  const DeviceRequest& request = arguments.request;
  if (request.choice.kind != accel::DeviceChoice::Kind::kNone) return;
  const auto refuse = [](const char* name) {
    throw UsageError(std::string(name) + " has no effect without --device");
  };
  if (request.memory_bytes) refuse("--device-memory");
  if (request.neurons) refuse("--device-neurons");
  if (arguments.says_kv) refuse("--device-kv");
  if (arguments.says_prompts) refuse("--device-prompts");
  if (request.matrices.layers) refuse("--device-layers");
  if (request.matrices.experts) refuse("--device-experts");
  if (!arguments.trace_path.empty()) refuse("--trace-device");
}

DeviceRequest DeviceRequestOf(const DeviceArguments& arguments,
                              const std::optional<ExecutionPlan>& plan, bool is_packed) {
  DeviceRequest request = arguments.request;
  const bool is_wanted = request.choice.kind != accel::DeviceChoice::Kind::kNone;
  if (plan && plan->device.has_value() != is_wanted) {
    throw UsageError(
        is_wanted ? "--device has no effect with --plan: this plan uses none"
                  : "this plan has a part of the model on a device: say on which with --device");
  }
  if (plan) request.planned = plan->device;
  // What a plan leaves to the processor is not all of the model.
  request.may_do_without = !plan && request.choice.kind == accel::DeviceChoice::Kind::kAuto;
  request.is_traced = !arguments.trace_path.empty();
  if (arguments.says_kv && plan) throw UsageError("--device-kv has no effect with --plan");
  if (is_wanted && !plan && !is_packed) {
    request.upload_tokens =
        arguments.prompt_tokens ? *arguments.prompt_tokens : MeasuredPromptTokens(arguments);
  } else if (arguments.says_prompts) {
    throw UsageError(is_packed ? "--device-prompts has no effect on a packed file"
                               : "--device-prompts has no effect with --plan");
  }
  request.programs_folder = accel::UsersProgramsFolder();
  return request;
}

void SayWhyNoDevice(const Engine& engine) {
  const std::string& why = engine.device().why_none;
  if (!why.empty()) PrintSentence("the processor computes alone: " + why);
}

void WriteDeviceTrace(const DeviceArguments& arguments, const Engine& engine) {
  const DevicePart* const part = engine.device().part.get();
  if (part == nullptr || part->trace() == nullptr) return;
  const accel::DeviceTrace& trace = *part->trace();
  if (trace.num_left_out() > 0) {
    PrintSentence(fmt::format("warning: {} ends early: {} more entries are left out",
                              arguments.trace_path, trace.num_left_out()));
  }
  const std::string text = TraceJson(trace, part->device().info().name)
                               .dump(1, ' ', false, Json::error_handler_t::replace);
  AtomicFile file(arguments.trace_path);
  file.Write(std::as_bytes(std::span(text)));
  file.Finish();
}

Json DeviceJson(Engine& engine) {
  const DevicePart* const part = engine.device().part.get();
  if (part == nullptr) return nullptr;
  const Budget& memory = part->device().memory();
  Json ledger = Json::object();
  for (const auto& [name, bytes] : memory.Ledger()) ledger[name] = bytes;
  Json json = {{"index", part->index()},
               {"name", part->device().info().name},
               {"budget_bytes", memory.limit_bytes()},
               {"ledger", ledger}};
  if (part->has_neurons()) {
    json["layer_neurons"] = part->layer_neurons();
    json["neurons_of_ffn"] = part->neurons_of_ffn();
    json["computed"] = {{"device", part->ffns()->neurons_computed()},
                        {"processor", engine.pass().ffn_counts().gate}};
  }
  if (part->matrices() == nullptr) return json;
  Json matrices = MatricesJson(part->placement());
  matrices["products"] = part->matrices()->products_computed();
  const accel::DevicePredictors* const predictors = part->predictors();
  matrices["predicted"] = predictors == nullptr ? 0 : predictors->tokens_asked();
  matrices["attended"] = part->attention() == nullptr ? 0 : part->attention()->tokens_attended();
  matrices["stayed"] =
      part->whole_layers() == nullptr ? 0 : part->whole_layers()->tokens_computed();
  matrices["uploaded_bytes"] = part->uploads() == nullptr ? 0 : part->uploads()->bytes_uploaded();
  json["matrices"] = matrices;
  return json;
}

std::string DeviceText(const Engine& engine) {
  const DevicePart* const part = engine.device().part.get();
  if (part == nullptr) return "";
  std::string what;
  if (part->has_neurons()) {
    const std::span<const int64_t> layers = part->layer_neurons();
    const auto [least, most] = std::minmax_element(layers.begin(), layers.end());
    const std::string neurons =
        *least == *most ? std::to_string(*most) : fmt::format("{} to {}", *least, *most);
    what = fmt::format("the hottest {} of {} neurons of each FFN", neurons, part->neurons_of_ffn());
  }
  if (part->matrices() != nullptr) {
    what += (what.empty() ? "" : "; ") + MatricesText(part->placement());
  }
  return fmt::format("device {}, {}: {}\n", part->index(), part->device().info().name, what);
}

std::string DeviceLedgerText(const Engine& engine) {
  const DevicePart* const part = engine.device().part.get();
  if (part == nullptr) return "";
  const Budget& memory = part->device().memory();
  std::string text = fmt::format("device {}\n", part->index());
  for (const auto& [name, bytes] : memory.Ledger()) {
    text += fmt::format("  {:<14}{:>12}\n", name, FormatSize(bytes));
  }
  return text + fmt::format("  {:<14}{:>12} of {}\n", "sum", FormatSize(memory.used_bytes()),
                            FormatSize(memory.limit_bytes()));
}

}  // namespace hearth::cli
