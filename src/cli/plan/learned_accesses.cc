#include "cli/plan/learned_accesses.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "cli/models/cache_folder.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

std::string StemOf(uint64_t model_hash, FfnMode mode) {
  return fmt::format("{}/{:016x}-{}", FolderOfAccesses(), model_hash, FfnModeName(mode));
}

}  // namespace

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

std::optional<AccessRecord> FindAccesses(uint64_t model_hash, FfnMode mode) {
  const std::string stem = StemOf(model_hash, mode);
  try {
    return ReadAccessRecord(stem, model_hash, mode);
  } catch (const Error& error) {
    PrintSentence(fmt::format("warning: {}; it is learned again", error.what()));
  }
  return std::nullopt;
}

AccessRecord LearnAccesses(const ModelOptions& model, uint64_t model_hash, FfnMode mode,
                           std::span<const TokenId> tokens) {
  const std::string stem = StemOf(model_hash, mode);
  RemoveAbandoned(FolderOfAccesses());
  ModelOptions options = model;
  options.context = std::ssize(tokens);
  options.mode = mode;
  options.kv_sequences = 1;
  options.doubts = false;  // the command has warned
  const auto engine = LoadEngine(options);
  ProgressLine progress("learning", ProgressUnit::kTokens);
  RecordAccesses(*engine, model_hash, tokens, stem, [&](uint64_t done, uint64_t total) {
    StopWhereInterrupted(options.model);
    progress.Update(done, total);
  });
  return *ReadAccessRecord(stem, model_hash, mode);
}

}  // namespace hearth::cli
