#include "cli/make_plan.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/memory_info.h"
#include "cli/cache_folder.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/text_input.h"
#include "engine/topic_walk.h"
#include "format/packed_file.h"
#include "planner/hardware_age.h"

namespace hearth::cli {
namespace {

// A program that computes has more stacks and buffers than one that plans.
constexpr uint64_t kProgramMarginBytes = uint64_t{16} << 20;

PlanRequest RequestOf(const PlanWishes& wishes, uint64_t program_bytes) {
  PlanRequest request;
  request.model = wishes.model.model;
  request.engine.memory_bytes = wishes.model.memory_bytes;
  request.engine.program_bytes = program_bytes;
  request.engine.context = wishes.model.context;
  request.engine.kv_sequences = wishes.model.kv_sequences;
  request.engine.kv_dtype = wishes.model.kv == "f32" ? DType::kF32 : DType::kF16;
  request.engine.mode = wishes.model.mode;
  request.engine.isa = wishes.model.isa;
  request.cores = wishes.cores;
  request.least_tok_s = wishes.min_speed;
  return request;
}

HardwareProfile HardwareOf(const PlanWishes& wishes) {
  const std::string path = wishes.hardware.empty() ? SavedHardwarePath() : wishes.hardware;
  if (path.empty() || !std::filesystem::exists(path)) {
    throw Error(ErrorCode::kNotFound, path.empty() ? "hardware profile" : path,
                "there is no hardware profile; 'hearth doctor' measures this machine");
  }
  HardwareProfile hardware = ReadHardware(path);
  CheckIsThisMachine(hardware, path);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  for (const std::string& reason :
       StaleReasons(hardware, wishes.model.model,
                    std::chrono::duration_cast<std::chrono::seconds>(now).count())) {
    PrintSentence(fmt::format("warning: {}: {}; 'hearth doctor' measures it anew", path, reason));
  }
  return hardware;
}

// What is computed to learn what it needs.
std::vector<TokenId> TokensToRecord(const PlanWishes& wishes, const Model& model) {
  std::vector<TokenId> tokens;
  if (!wishes.text.empty()) {
    tokens = model.tokenizer().Encode(ReadTextFile(wishes.text));
  } else if (const auto topics =
                 TopicMap::FromMetadata(model.metadata(), model.spec().vocab_size)) {
    tokens = TopicWalk(*topics).Take(wishes.tokens);
  } else {
    throw UsageError(
        fmt::format("what this model needs for a token is not known yet: "
                    "'hearth plan {} --text FILE' says on what to learn it",
                    Printable(wishes.model.model)));
  }
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(wishes.tokens)));
  if (tokens.size() < 2) {
    throw Error(ErrorCode::kInvalidArgument, wishes.text, "the text has no two tokens");
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
AccessRecord AccessesOf(const PlanWishes& wishes, uint64_t model_hash, FfnMode mode) {
  const std::string folder = FolderOfAccesses();
  const std::string stem = fmt::format("{}/{:016x}-{}", folder, model_hash, FfnModeName(mode));
  if (!wishes.record) {
    if (auto record = ReadAccessRecord(stem, model_hash, mode)) return std::move(*record);
  }
  PrintNotice(fmt::format("learning what {} tokens need (kept in {})\n", wishes.tokens, folder));
  ModelOptions options = wishes.model;
  options.context = wishes.tokens;
  options.mode = mode;
  options.kv_sequences = 1;
  const auto engine = LoadEngine(options);
  ProgressLine progress("learning", ProgressUnit::kTokens);
  RecordAccesses(*engine, model_hash, TokensToRecord(wishes, engine->model()), stem,
                 [&](uint64_t done, uint64_t total) { progress.Update(done, total); });
  return *ReadAccessRecord(stem, model_hash, mode);
}

}  // namespace

uint64_t ProgramBytesOfRuns() { return ResidentBytes() * 5 / 4 + kProgramMarginBytes; }

PlannedRun MakePlanHere(const PlanWishes& wishes, uint64_t program_bytes) {
  const HardwareProfile hardware = HardwareOf(wishes);
  const PlanRequest request = RequestOf(wishes, program_bytes);
  const GgufFile file = GgufFile::Open(request.model);
  std::optional<AccessRecord> accesses;
  CheckPlanMemory(request, hardware);
  if (const auto mode = RecordedModeOf(file, request)) {
    accesses = AccessesOf(wishes, ModelHash(file), *mode);
  } else if (wishes.record || !wishes.text.empty()) {
    throw UsageError(
        "--text and --record have no effect: every token of this model needs the same");
  }
  return MakePlan(request, hardware, accesses ? &*accesses : nullptr);
}

}  // namespace hearth::cli
