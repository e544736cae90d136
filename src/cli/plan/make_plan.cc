#include "cli/plan/make_plan.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/memory_info.h"
#include "cli/measure/measure_machine.h"
#include "cli/models/cache_folder.h"
#include "cli/options/option_values.h"
#include "cli/options/text_input.h"
#include "cli/plan/learned_accesses.h"
#include "cli/screen/output.h"
#include "format/packed_file.h"
#include "import/open_model.h"
#include "measure/bench.h"
#include "measure/topic_walk.h"
#include "model/registry.h"
#include "planner/doctor/hardware_age.h"
#include "planner/placement/place_matrices.h"
#include "tensor/kv_layout.h"

namespace hearth::cli {
namespace {

PlanRequest RequestOf(const PlanWishes& wishes, uint64_t program_bytes) {
  PlanRequest request;
  request.model = wishes.model.model;
  request.engine.memory_bytes = wishes.model.memory_bytes;
  request.engine.may_shorten_passes = true;
  request.engine.program_bytes = program_bytes;
  request.engine.context = wishes.model.context;
  request.engine.kv_sequences = wishes.model.kv_sequences;
  request.engine.kv_codec = KvCodecFromName(wishes.model.kv).value();
  request.engine.mode = wishes.model.mode;
  request.engine.activation = wishes.model.activation;
  request.engine.isa = wishes.model.isa;
  request.cores = wishes.cores;
  request.least_tok_s = wishes.min_speed;
  request.uses_solver = wishes.uses_solver;
  if (wishes.device) {
    request.device = wishes.device->share;
    request.engine.may_stream = wishes.device->is_streamed;
  }
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
std::vector<TokenId> TokensToRecord(const PlanWishes& wishes, const GgufFile& file) {
  const ModelSpec spec = ReadModelSpec(file);
  const int64_t most = std::min(wishes.tokens.value_or(kTokensToLearnFrom), spec.context_length);
  std::vector<TokenId> tokens;
  if (!wishes.text.empty()) {
    tokens = Tokenizer::FromGguf(file.metadata())->Encode(ReadTextFile(wishes.text));
  } else if (const auto topics = TopicMap::FromMetadata(file.metadata(), spec.vocab_size)) {
    tokens = TopicWalk(*topics, kLearningWalk).Take(most);
  } else {
    throw UsageError(fmt::format(
        "Hearth has not yet watched this model run: give it a text to learn from, once: "
        "'hearth plan {} --text FILE'",
        Printable(wishes.model.model)));
  }
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(most)));
  if (tokens.size() < kLeastTokensToLearnFrom) {
    throw Error(ErrorCode::kInvalidArgument, wishes.text,
                fmt::format("the text has no {} tokens to learn from", kLeastTokensToLearnFrom));
  }
  return tokens;
}

// Whether it is of the tokens that `bench` decodes, as those of earlier versions were: a plan that
// is judged by them must be made from others.
bool IsOfBench(const AccessRecord& record, const GgufFile& file) {
  const int64_t vocab_size = ReadModelSpec(file).vocab_size;
  return record.tokens_hash ==
         HashOfRecorded(BenchTokens(file.metadata(), vocab_size, record.tokens));
}

// The record of the model in its mode, made where there is none.
AccessRecord AccessesOf(const PlanWishes& wishes, const GgufFile& file, FfnMode mode) {
  if (wishes.is_header) {
    throw Error(
        ErrorCode::kUnsupported, wishes.model.model,
        "it does not fit into this memory, and which experts a token needs is known only once "
        "the model is here: plan its file, or with more memory");
  }
  const uint64_t model_hash = ModelHash(file);
  const bool says_what = !wishes.text.empty() || wishes.tokens;
  std::vector<TokenId> tokens;
  if (wishes.record || says_what) tokens = TokensToRecord(wishes, file);
  if (!wishes.record) {
    auto record = FindAccesses(model_hash, mode);
    if (record && IsOfBench(*record, file)) record.reset();
    if (record && says_what && record->tokens_hash != HashOfRecorded(tokens)) {
      throw UsageError(
          "--text and --tokens have no effect: what this model needs was learned from other "
          "tokens; --record learns it again");
    }
    if (record) return std::move(*record);
  }
  if (tokens.empty()) tokens = TokensToRecord(wishes, file);
  PrintNotice(fmt::format("learning what {} tokens need (kept in {})\n", tokens.size(),
                          FolderOfAccesses()));
  return LearnAccesses(wishes.model, model_hash, mode, tokens);
}

}  // namespace

uint64_t ProgramBytesWith(const std::string& model) {
  // As Engine::Load has them when it counts.
  const GgufFile file = OpenModel(model);
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::FromGguf(file.metadata());
  return ProgramBytes();
}

void MeasureWhereUnknown(const PlanWishes& wishes) {
  const std::string path = SavedHardwarePath();
  if (!wishes.hardware.empty() || path.empty() || std::filesystem::exists(path)) return;
  PrintSentence(
      "this machine was not measured yet: it is now, in some seconds; 'hearth doctor' takes longer "
      "and measures it better");
  ProfilerOptions options = {.effort = QuickEffort()};
  std::error_code failed;
  const uint64_t bytes = std::filesystem::file_size(wishes.model.model, failed);
  if (!failed && !wishes.is_header && bytes >= options.effort.file_bytes) {
    options.file = wishes.model.model;
  }
  MeasureMachine(options);
}

DevicePlacement PlaceNeurons(const PlanWishes& wishes, uint64_t program_bytes,
                             const ModelProfile* profile, const PlacementMachine& machine) {
  const PlanRequest request = RequestOf(wishes, program_bytes);
  return PlaceOnDevice(OpenModel(request.model, wishes.model.activation), profile, machine,
                       request.engine);
}

PlannedRun MakePlanHere(const PlanWishes& wishes, uint64_t program_bytes) {
  const HardwareProfile hardware = HardwareOf(wishes);
  PlanRequest request = RequestOf(wishes, program_bytes);
  const GgufFile file = OpenModel(request.model, wishes.model.activation);
  const auto place = [&](const AccessRecord* accesses) {
    if (!wishes.matrix_machine) return;
    request.matrices = PlaceMatrices(file, accesses, *wishes.matrix_machine, request.engine);
  };
  place(nullptr);
  if (wishes.model.doubts) WarnOfActivation(file);
  std::optional<AccessRecord> accesses;
  CheckPlanMemory(request, hardware);
  if (const auto mode = RecordedModeOf(file, request)) {
    accesses = AccessesOf(wishes, file, *mode);
    place(&*accesses);  // by which experts are hot
  } else if (wishes.record || wishes.tokens || !wishes.text.empty()) {
    throw UsageError(
        "--text, --tokens and --record have no effect: all of this model is in memory, or every "
        "token needs the same of it");
  }
  return MakePlan(request, hardware, accesses ? &*accesses : nullptr);
}

}  // namespace hearth::cli
