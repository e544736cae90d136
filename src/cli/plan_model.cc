#include "cli/plan_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/units.h"
#include "cli/cache_folder.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/text_input.h"
#include "engine/topic_walk.h"
#include "format/packed_file.h"
#include "planner/planner.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

constexpr int64_t kMostTokens = 65536;
constexpr int kMostCpus = 4096;
// A program that computes has more stacks and buffers than one that plans.
constexpr uint64_t kProgramMarginBytes = uint64_t{16} << 20;

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
  const std::vector<int> usable = AllowedCpus();
  if (arguments.cores.empty()) return usable;
  std::vector<int> cores = ParseCores(arguments.cores);
  for (const int cpu : cores) {
    if (std::find(usable.begin(), usable.end(), cpu) == usable.end()) {
      throw UsageError(fmt::format("--cores: this process may not use processor {}", cpu));
    }
  }
  return cores;
}

PlanRequest RequestOf(const PlanArguments& arguments) {
  PlanRequest request;
  request.model = arguments.model.model;
  request.engine.memory_bytes = arguments.model.memory_bytes;
  request.engine.context = arguments.model.context;
  request.engine.kv_dtype = arguments.model.kv == "f32" ? DType::kF32 : DType::kF16;
  request.engine.mode = arguments.model.mode;
  request.engine.isa = arguments.model.isa;
  request.cores = AllowedCores(arguments);
  request.least_tok_s = arguments.min_speed;
  return request;
}

// What is computed to learn which neurons it needs.
std::vector<TokenId> TokensToRecord(const PlanArguments& arguments, const Model& model) {
  std::vector<TokenId> tokens;
  if (!arguments.text.empty()) {
    tokens = model.tokenizer().Encode(ReadTextFile(arguments.text));
  } else if (const auto topics =
                 TopicMap::FromMetadata(model.metadata(), model.spec().vocab_size)) {
    tokens = TopicWalk(*topics).Take(arguments.tokens);
  } else {
    throw UsageError(
        "which neurons this model needs is not known yet: --text FILE says on what to learn it");
  }
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(arguments.tokens)));
  if (tokens.size() < 2) {
    throw Error(ErrorCode::kInvalidArgument, arguments.text, "the text has no two tokens");
  }
  return tokens;
}

std::string FolderOfAccesses() {
  const std::string cache = CacheFolder();
  if (cache.empty()) {
    throw Error(ErrorCode::kNotFound, "the folder for what was learned of models",
                "neither XDG_CACHE_HOME nor HOME says where it is");
  }
  const std::string folder = cache + "/accesses";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(ErrorCode::kIo, folder, "cannot be made: " + error.message());
  return folder;
}

// The record of the model in its mode, made where there is none.
AccessRecord AccessesOf(const PlanArguments& arguments, uint64_t model_hash, FfnMode mode) {
  const std::string folder = FolderOfAccesses();
  const std::string stem = fmt::format("{}/{:016x}-{}", folder, model_hash, FfnModeName(mode));
  if (!arguments.record) {
    if (auto record = ReadAccessRecord(stem, model_hash, mode)) return std::move(*record);
  }
  PrintNotice(fmt::format("learning which neurons {} tokens need (kept in {})\n", arguments.tokens,
                          folder));
  ModelOptions options = arguments.model;
  options.context = arguments.tokens;
  options.mode = mode;
  const auto engine = LoadEngine(options);
  ProgressLine progress("learning", ProgressUnit::kTokens);
  RecordAccesses(*engine, model_hash, TokensToRecord(arguments, engine->model()), stem,
                 [&](uint64_t done, uint64_t total) { progress.Update(done, total); });
  return *ReadAccessRecord(stem, model_hash, mode);
}

std::string CoresText(const std::vector<int>& cores) {
  std::string text;
  for (const int cpu : cores) text += fmt::format("{}{}", text.empty() ? "" : ", ", cpu);
  return text;
}

std::string FfnText(const ExecutionPlan& plan) {
  if (!plan.stream) {
    return plan.io_strategy == "none" ? "all in memory"
                                      : "a part in memory, the rest read in order";
  }
  const auto layers = static_cast<double>(plan.num_layers);
  return fmt::format("{}first {} of {} neurons pinned, a cache of {:.0f} more per layer ({})",
                     plan.stream->holds_gates ? "all gates pinned; of up and down: " : "",
                     plan.stream->pinned_neurons, plan.neurons,
                     static_cast<double>(plan.stream->cache_slots) / layers, plan.cache_policy);
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
      time.io_ms, CoresText(plan.compute_cores), plan.mode, FfnText(plan));
  if (plan.io_strategy != "none") {
    text +=
        fmt::format("reads         {} per token ({}, {}){}\n",
                    FormatSize(plan.bytes_read_per_token), plan.io_strategy, plan.io_backend,
                    plan.stream ? fmt::format(", {:.1f}% of neurons", 100 * plan.miss_rate) : "");
  }
  if (run.tok_s_with_more) {
    text += fmt::format("with 1G more  {:.1f} tok/s\n", *run.tok_s_with_more);
  }
  if (run.tok_s_with_less) {
    text += fmt::format("with 1G less  {:.1f} tok/s\n", *run.tok_s_with_less);
  }
  text += fmt::format("memory        {} of {}\n", FormatSize(plan.ledger_bytes()),
                      FormatSize(plan.budget_bytes));
  for (const auto& [name, bytes] : plan.ledger) {
    text += fmt::format("  {:<20}{:>10}\n", name, FormatSize(bytes));
  }
  return text;
}

}  // namespace

void AddPlanOptions(CLI::App& command, PlanArguments& arguments) {
  command
      .add_option("--min-speed", arguments.min_speed,
                  "the least memory for so many tokens per second, instead of the fastest within "
                  "the memory")
      ->option_text("TOK_S")
      ->check(CLI::Range(1e-3, 1e6));
  command.add_option("--cores", arguments.cores, "processors that may be used, such as 0,2-5")
      ->option_text("SET")
      ->check(NotEmpty());
  command
      .add_option("--hw", arguments.hardware,
                  "a hardware profile (default: what 'hearth doctor' saved)")
      ->option_text("FILE")
      ->check(NotEmpty());
  command
      .add_option("--text", arguments.text,
                  "learn from this text which neurons the model needs (once per model and mode)")
      ->option_text("FILE")
      ->check(NotEmpty());
  command.add_option("--tokens", arguments.tokens, "tokens of it (256)")
      ->option_text("N")
      ->check(CLI::Range(int64_t{8}, kMostTokens));
  command.add_flag("--record", arguments.record, "learn it again");
  command
      .add_option("-o,--output", arguments.output, "write the plan, for --plan of run and bench")
      ->option_text("PLAN")
      ->check(NotEmpty());
  command.add_option("--ctx", arguments.model.context, "context in tokens, as for run")
      ->option_text("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command.add_option("--kv", arguments.model.kv, "type of the KV cache (default f16)")
      ->option_text("f16|f32")
      ->check(CLI::IsMember({"f16", "f32"}));
  command
      .add_option_function<std::string>(
          "--mode",
          [&arguments](const std::string& name) { arguments.model.mode = ParseMode(name); },
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
  PlanRequest request = RequestOf(arguments);
  // Before anything is read: what runs the plan is the same program.
  request.engine.program_bytes = ResidentBytes() * 5 / 4 + kProgramMarginBytes;
  const std::string path = arguments.hardware.empty() ? SavedHardwarePath() : arguments.hardware;
  if (path.empty() || !std::filesystem::exists(path)) {
    throw Error(ErrorCode::kNotFound, path.empty() ? "hardware profile" : path,
                "there is no hardware profile; 'hearth doctor' measures this machine");
  }
  if (!arguments.output.empty()) CheckWritable(arguments.output);  // before the work
  const HardwareProfile hardware = ReadHardware(path);
  CheckIsThisMachine(hardware, path);
  const GgufFile file = GgufFile::Open(request.model);
  std::optional<AccessRecord> accesses;
  if (const auto mode = SparseModeOf(file, request.engine.mode)) {
    accesses = AccessesOf(arguments, ModelHash(file), *mode);
  } else if (arguments.record || !arguments.text.empty()) {
    throw UsageError("--text and --record have no effect: the model computes every neuron");
  }
  const PlannedRun run = MakePlan(request, hardware, accesses ? &*accesses : nullptr);
  const std::string document = DumpJson(PlanJson(run.plan));
  if (!arguments.output.empty()) WriteFileAtomically(arguments.output, document);
  WriteOutput(json ? document : PlanText(run));
  return kExitDone;
}

}  // namespace hearth::cli
