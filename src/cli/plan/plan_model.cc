#include "cli/plan/plan_model.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/models/cache_folder.h"
#include "cli/options/command_files.h"
#include "cli/options/option_values.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"
#include "engine/load/device_part.h"
#include "format/packed_file.h"
#include "import/open_model.h"
#include "plan/ledger.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/synth.h"
#include "sparsity/profile.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

constexpr int64_t kMostTokens = 65536;
constexpr int kMostCpus = 4096;

// "0,2-5", ascending and each once.
std::vector<int> ParseCores(const std::string& text) {
  const auto refuse = [&] {
    throw UsageError("--cores: expected numbers of processors like 0,2-5, found '" +
                     Printable(text) + "'");
  };
  std::vector<int> cores;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&] {
    int value = -1;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value >= kMostCpus) refuse();
    at = stop;
    return value;
  };
  for (;; ++at) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    for (int cpu = first; cpu <= last; ++cpu) cores.push_back(cpu);
    if (last < first || (at != end && *at != ',')) refuse();
    if (at == end) break;
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

std::vector<int> AllowedCores(const PlanArguments& arguments) {
  std::vector<int> usable = AllowedCpus();
  const auto at_a_time = static_cast<size_t>(AvailableCpus());  // less where a quota is set
  if (arguments.cores.empty()) {
    usable.resize(std::min(usable.size(), at_a_time));
    return usable;
  }
  std::vector<int> cores = ParseCores(arguments.cores);
  for (const int cpu : cores) {
    if (std::find(usable.begin(), usable.end(), cpu) == usable.end()) {
      throw UsageError(fmt::format("--cores: this process may not use processor {}", cpu));
    }
  }
  if (cores.size() > at_a_time) {
    throw UsageError(
        fmt::format("--cores: this process has the time of {} processors only", at_a_time));
  }
  return cores;
}

std::string CoresText(const ExecutionPlan& plan) {
  std::string text = fmt::format("{}", fmt::join(plan.compute_cores, ", "));
  if (plan.io_core) text += fmt::format(", and {} to read", *plan.io_core);
  return text;
}

std::string FfnText(const ExecutionPlan& plan) {
  if (!plan.stream) {
    if (plan.io_strategy == "none") return "all in memory";
    if (plan.io_strategy == "experts") return "experts cached (" + plan.cache_policy + ")";
    return "a part in memory, the rest read in order";
  }
  const auto layers = static_cast<double>(plan.num_layers);
  return fmt::format("{}first {} of {} neurons pinned, a cache of {:.0f} more per layer ({})",
                     plan.stream->holds_gates ? "all gates pinned; of up and down: " : "",
                     plan.stream->pinned_neurons, plan.neurons,
                     static_cast<double>(plan.stream->cache_slots) / layers, plan.cache_policy);
}

std::string NeuronsText(const ExecutionPlan& plan) {
  const std::vector<int64_t>& layers = plan.device->layer_neurons;
  const auto [least, most] = std::minmax_element(layers.begin(), layers.end());
  return fmt::format(
      "the first {} of {} neurons of each layer",
      *least == *most ? std::to_string(*most) : fmt::format("{} to {}", *least, *most),
      plan.neurons);
}

std::string DeviceText(const ExecutionPlan& plan) {
  if (!plan.device) return "";
  const PlannedDevice& device = *plan.device;
  std::string what = device.layer_neurons.empty() ? "" : NeuronsText(plan);
  if (!device.matrices.layers.empty()) {
    what += (what.empty() ? "" : "; ") + MatricesText(device.matrices);
  }
  return fmt::format("device        {}, {} of {}; {:.1f} ms per token\n", what,
                     FormatSize(LedgerSum(device.ledger)), FormatSize(device.memory_bytes),
                     plan.time.device_ms);
}

std::string PlanText(const PlannedRun& run) {
  const ExecutionPlan& plan = run.plan;
  const PlannedTime& time = plan.time;
  std::string text = fmt::format(
      "decode        {:.1f} tok/s, bound by {}\n"
      "prefill       {:.1f} tok/s\n"
      "a token       {:.1f} ms: attention {:.1f}, predictors {:.1f}, FFNs {:.1f}, reading {:.1f} "
      "beside them\n"
      "processors    {}\n"
      "FFNs          {}, {}\n",
      plan.decode_tok_s, plan.bound == "flash" ? "reading from flash" : plan.bound,
      plan.prefill_tok_s, time.token_ms, time.attention_ms, time.predictor_ms, time.ffn_ms,
      time.io_ms, CoresText(plan), plan.mode, FfnText(plan));
  text += DeviceText(plan);
  if (plan.io_strategy != "none") {
    text += fmt::format("reads         {} per token ({}, {}){}\n",
                        FormatSize(plan.bytes_read_per_token), plan.io_strategy, plan.io_backend,
                        plan.miss_rate > 0 ? fmt::format(", {:.1f}% of {}", 100 * plan.miss_rate,
                                                         plan.stream ? "neurons" : "experts")
                                           : "");
  }
  if (run.tok_s_with_more) {
    text += fmt::format("with 1G more  {:.1f} tok/s\n", *run.tok_s_with_more);
  }
  if (run.tok_s_with_less) {
    text += fmt::format("with 1G less  {:.1f} tok/s\n", *run.tok_s_with_less);
  }
  if (run.hidden_kv_tokens) {
    text += fmt::format(
        "kv on flash   reading {} tokens of a context takes no longer than all else, more does\n",
        *run.hidden_kv_tokens);
  }
  text += fmt::format("memory        {} of {}\n", FormatSize(plan.ledger_bytes()),
                      FormatSize(plan.budget_bytes));
  for (const auto& [name, bytes] : plan.ledger) {
    text += fmt::format("  {:<20}{:>10}\n", name, FormatSize(bytes));
  }
  if (const auto kv = plan.ledger.find("kv cache");
      kv != plan.ledger.end() && plan.io_strategy != "none") {
    text +=
        fmt::format("kv cache      0 B now, {} when {} tokens are used; until then FFNs have it\n",
                    FormatSize(kv->second), plan.context);
  }
  return text;
}

// What the program takes that runs a plan with a device: its driver too, and where the device has
// no memory of its own, what lies there. The driver is this machine's first device's, where it has
// one that can be used for the model; a plan may be for another machine's.
uint64_t ProgramBytesBeside(const PlacementArguments& arguments, const PlanWishes& wishes) {
  const std::vector<accel::DeviceInfo> devices = accel::ListDevices().devices;
  if (devices.empty()) return ProgramBytesWith(wishes.model.model);
  const auto card = std::find_if(devices.begin(), devices.end(), [](const accel::DeviceInfo& info) {
    return info.kind != accel::DeviceKind::kCpu;
  });
  const auto index = static_cast<size_t>(card == devices.end() ? 0 : card - devices.begin());
  DeviceRequest request = {.choice = {accel::DeviceChoice::Kind::kIndex, index},
                           .memory_bytes = arguments.device_bytes,
                           .programs_folder = accel::UsersProgramsFolder()};
  const GgufFile file = OpenModel(wishes.model.model, wishes.model.activation);
  if (IsPacked(file.metadata())) {
    request.neurons = 1;
  } else {
    request.matrices.layers = 1;
  }
  std::unique_ptr<DevicePart> part;
  try {
    const LoadPlan plan = PlanLoad(file);
    part =
        std::make_unique<DevicePart>(request, file, plan, PassesFor(EngineOptions(), file, plan));
  } catch (const Error&) {  // what is wrong with the model or the memory is said when it is placed
  }
  return ProgramBytesWith(wishes.model.model) +
         (devices[index].shares_memory ? *arguments.device_bytes : 0);
}

DevicePlacement PlaceOn(const PlacementArguments& arguments, const PlanWishes& wishes,
                        uint64_t program_bytes) {
  std::optional<ModelProfile> profile;
  if (!arguments.profile.empty()) profile = LoadProfile(arguments.profile);
  return PlaceNeurons(wishes, program_bytes, profile ? &*profile : nullptr,
                      PlacementMachineOf(arguments));
}

}  // namespace

void AddPlanOptions(CLI::App& command, PlanArguments& arguments) {
  command
      .add_option("--min-speed", arguments.wishes.min_speed,
                  "plan for this speed in the least memory, instead of for the highest speed "
                  "within the limit")
      ->option_text("TOK_S")
      ->check(NumberIn(1e-3, 1e6));
  command.add_option("--cores", arguments.cores, "processors that may be used, such as 0,2-5")
      ->option_text("SET")
      ->check(NotEmpty());
  command
      .add_option("--hw", arguments.wishes.hardware,
                  "a hardware profile (default: what 'hearth doctor' saved; where it saved "
                  "none, this machine is measured quickly)")
      ->option_text("FILE")
      ->check(NotEmpty());
  command
      .add_option("--text", arguments.wishes.text,
                  "learn from this text which neurons the model needs (once per model and mode; "
                  "not where pack learned it from its --text)")
      ->option_text("FILE")
      ->check(NotEmpty());
  command.add_option("--tokens", arguments.wishes.tokens, "tokens of it (256)")
      ->option_text("N")
      ->check(WholeIn(8, kMostTokens));
  command.add_flag("--record", arguments.wishes.record, "learn it again");
  command
      .add_option("-o,--output", arguments.output, "write the plan, for --plan of run and bench")
      ->option_text("PLAN")
      ->check(NotEmpty());
  command.add_option("--ctx", arguments.wishes.model.context, "context in tokens, as for run")
      ->option_text("N")
      ->check(WholeIn(1, int64_t{1} << 31));
  AddKvOption(command, arguments.wishes.model.kv);
  command
      .add_option_function<std::string>(
          "--mode",
          [&arguments](const std::string& name) { arguments.wishes.model.mode = ParseMode(name); },
          "which neurons to compute (default auto: what the file was packed for)")
      ->option_text("auto|dense|gated|predicted");
}

const std::vector<const char*>& PlanOptionNames() {
  static const std::vector<const char*> kNames = {"--min-speed", "--cores",  "--hw",     "--text",
                                                  "--tokens",    "--record", "--output", "--ctx",
                                                  "--kv",        "--mode"};
  return kNames;
}

int PlanModel(const PlanArguments& arguments, bool json) {
  PlanWishes wishes = arguments.wishes;
  CheckFiles({{"MODEL", wishes.model.model},
              {"--hw", wishes.hardware.empty() ? SavedHardwarePath() : wishes.hardware},
              {"--text", wishes.text}},
             {{"--output", arguments.output}});
  wishes.cores = AllowedCores(arguments);
  if (!arguments.output.empty()) CheckWritable(arguments.output);  // before the work
  // What runs the plan is the same program, without what planning leaves behind.
  const uint64_t program_bytes =
      kProgramMarginBytes + (arguments.placement ? ProgramBytesBeside(*arguments.placement, wishes)
                                                 : ProgramBytesWith(wishes.model.model));
  MeasureWhereUnknown(wishes);
  if (arguments.placement) {
    if (IsPacked(OpenModel(wishes.model.model, wishes.model.activation).metadata())) {
      wishes.device = PlaceOn(*arguments.placement, wishes, program_bytes);
    } else if (!arguments.placement->profile.empty()) {
      throw UsageError(
          "--profile has no effect: this model is not packed, and its matrices are "
          "placed, not neurons");
    } else {
      wishes.matrix_machine = PlacementMachineOf(*arguments.placement);
    }
  }
  PlannedRun run = MakePlanHere(wishes, program_bytes);
  if (arguments.from_header) run.plan.model_hash.assign(run.plan.model_hash.size(), '0');
  const std::string document = DumpJson(PlanJson(run.plan));
  if (!arguments.output.empty()) WriteFileAtomically(arguments.output, document);
  WriteOutput(json ? document : PlanText(run));
  return kExitDone;
}

int PlanShape(const PlanArguments& arguments, bool json) {
  const std::string name = arguments.wishes.model.model;
  std::string folder = (std::filesystem::temp_directory_path() / "hearth-plan.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    throw Error(ErrorCode::kIo, folder, std::string("cannot be made: ") + std::strerror(errno));
  }
  const struct Removes {
    const std::string& folder;
    ~Removes() {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
  } removes{folder};
  PlanArguments of_file = arguments;
  of_file.from_header = true;
  of_file.wishes.is_header = true;
  of_file.wishes.model.model = folder + "/" + std::filesystem::path(name).stem().string() + ".gguf";
  const uint64_t bytes =
      WriteShapeFile(ResolveShape(name), DType::kQ4_0, of_file.wishes.model.model);
  PrintNotice(fmt::format("{} in Q4_0, {}: estimated from its shape, no file was read\n", name,
                          FormatSize(bytes)));
  return PlanModel(of_file, json);
}

}  // namespace hearth::cli
