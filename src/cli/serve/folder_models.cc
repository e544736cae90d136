#include "cli/serve/folder_models.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "api/model_impl.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/units.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"
#include "cli/serve/session_options.h"
#include "engine/load/engine_plan.h"
#include "import/open_model.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth::cli {
namespace {

namespace fs = std::filesystem;

// Memory for connections, for requests being parsed, and for each request's candidates for its next
// token.
constexpr uint64_t kConnectionBytes = uint64_t{24} << 20;
// Extra memory while a model is being read. Models are loaded one at a time.
constexpr uint64_t kLoadBytes = uint64_t{12} << 20;
// Each model also needs memory for the grammars of JSON Schemas, and a margin for what measuring
// the program misses.
constexpr uint64_t kGrammarBytes = uint64_t{8} << 20;
constexpr uint64_t kDriftBytes = uint64_t{2} << 20;

// Identifies a model's files: it changes when one is written, replaced or renamed. Empty if one is
// gone.
std::string VersionOf(const hub::LocalModel& model) {
  std::string version;
  for (const std::string& path : model.paths) {
    struct stat file = {};
    if (stat(path.c_str(), &file) != 0) return "";
    version += fmt::format("{}:{}:{}:{}.{};", file.st_dev, file.st_ino, file.st_size,
                           file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  }
  return version;
}

// An address of the hub is another way to say the name.
std::string NameWithoutAddress(const std::string& name) {
  const auto parsed = hub::ParseModelName(name);
  return parsed ? parsed->Text() : name;
}

// Measures the memory that a model's header and tokenizer take. Other threads allocate meanwhile,
// so it takes the larger of two differences: what making them added, and what dropping them freed.
uint64_t MeasureOwnBytes(const std::string& path) {
  const uint64_t before = HeapBytes();
  uint64_t with = 0;
  {
    const GgufFile file = OpenModel(path);
    const auto tokenizer = Tokenizer::FromGguf(file.metadata());
    with = HeapBytes();
  }
  const uint64_t least = std::min(before, HeapBytes());
  return with - std::min(with, least);
}

}  // namespace

uint64_t ProgramBytesOfServer() { return ProgramBytes() + kConnectionBytes + kLoadBytes; }

FolderModels::FolderModels(std::string folder) : folder_(std::move(folder)) {
  std::error_code failed;
  if (!fs::is_directory(folder_, failed)) {
    throw Error(ErrorCode::kNotFound, Printable(folder_), "there is no such folder");
  }
  Look();
}

void FolderModels::Look() {
  models_ = hub::ListModels(folder_);
  std::erase_if(models_, [](const hub::LocalModel& model) {
    return !model.is_whole() || model.files.is_helper;
  });
}

std::vector<serve::ModelKey> FolderModels::FindListed(const std::string& asked,
                                                      bool as_listed) const {
  std::vector<serve::ModelKey> keys;
  for (const hub::LocalModel* model : hub::FindModels(models_, NameWithoutAddress(asked), true)) {
    if (!as_listed || model->Name() == asked) keys.push_back({model->Name(), VersionOf(*model)});
  }
  return keys;
}

std::vector<serve::ModelKey> FolderModels::List() {
  return api::Translated([&] {
    const std::lock_guard lock(mutex_);
    Look();
    std::vector<serve::ModelKey> keys;
    for (const hub::LocalModel& model : models_) keys.push_back({model.Name(), VersionOf(model)});
    return keys;
  });
}

std::vector<serve::ModelKey> FolderModels::Find(const std::string& asked) {
  return api::Translated([&] {
    const std::lock_guard lock(mutex_);
    // The list as it was does where it has this very name, and the files are there.
    std::vector<serve::ModelKey> keys = FindListed(asked, true);
    if (keys.size() == 1 && !keys.front().version.empty()) return keys;
    Look();
    return FindListed(asked, false);
  });
}

std::string FolderModels::NameOf(const std::string& model) {
  const std::lock_guard lock(mutex_);
  for (const hub::LocalModel& one : models_) {
    for (const std::string& path : one.paths) {
      std::error_code failed;
      if (fs::equivalent(path, model, failed) && !failed) return one.Name();
    }
  }
  const std::vector<serve::ModelKey> keys = FindListed(model, false);
  if (keys.size() == 1) return keys.front().name;
  std::string names;
  for (const hub::LocalModel& one : models_) {
    names += (names.empty() ? "" : ", ") + Printable(one.Name(), 300);
  }
  throw Error(ErrorCode::kNotFound, "",
              fmt::format("{} in {}, which has {}",
                          keys.empty() ? fmt::format("there is no model '{}'", Printable(model))
                                       : fmt::format("several models may be meant by '{}'",
                                                     Printable(model)),
                          Printable(folder_), names.empty() ? "none" : names));
}

std::string FolderModels::PathOf(const serve::ModelKey& key) {
  const std::lock_guard lock(mutex_);
  for (const hub::LocalModel& model : models_) {
    if (model.Name() == key.name && VersionOf(model) == key.version) return model.paths.front();
  }
  throw Error(ErrorCode::kNotFound, "", "its files are gone or have changed: ask again");
}

EngineOptions FolderModels::OptionsFor(const std::string& path, uint64_t own_bytes) const {
  ModelOptions model = settings_.model;
  model.model = path;
  model.kv_sequences = settings_.parallel;
  EngineOptions options = EngineOptionsOf(model);
  options.program_bytes = settings_.program_bytes + own_bytes;
  // What all may have at most is more than some were made for.
  if (options.context > 0) {
    const ModelSpec spec = ReadModelSpec(OpenModel(path));
    options.context = std::min(options.context, spec.context_length);
  }
  return options;
}

uint64_t FolderModels::Measure(const serve::ModelKey& key) {
  return api::Translated([&] {
    const std::string path = PathOf(key);
    uint64_t own_bytes = MeasureOwnBytes(path) + kGrammarBytes + kDriftBytes;
    if (settings_.sessions) own_bytes += SessionKeeper::kMemoryBytes;
    {
      const std::lock_guard lock(mutex_);
      own_bytes_[key.version] = own_bytes;
    }
    const EnginePlan plan = PlanEngine(OpenModel(path), OptionsFor(path, own_bytes));
    CheckBudget(plan, path);
    return plan.needed_bytes() - settings_.program_bytes;
  });
}

void FolderModels::SayOnce(const Engine& engine, const serve::ModelKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (!said_.insert(key.version).second) return;
  }
  SayDoubts(engine);
}

std::unique_ptr<api::Model> FolderModels::Load(const serve::ModelKey& key, uint64_t bytes,
                                               const std::atomic<bool>& cancel) {
  return api::Translated([&] {
    const std::string path = PathOf(key);
    uint64_t own_bytes = 0;
    {
      const std::lock_guard lock(mutex_);
      own_bytes = own_bytes_.at(key.version);
    }
    std::unique_ptr<Engine> engine =
        Engine::Load(path, OptionsFor(path, own_bytes), [&](uint64_t, uint64_t) {
          if (cancel) throw Error(ErrorCode::kCancelled, "", "nobody waits for it any more");
        });
    if (engine->budget().used_bytes() > settings_.program_bytes + bytes) {
      throw Error(ErrorCode::kNotFound, "", "its files have changed: ask again");
    }
    SayOnce(*engine, key);
    if (settings_.verbose) {
      ModelOptions model = settings_.model;
      model.model = path;
      PrintNotice(EngineText(*engine, model) + "memory\n" + LedgerText(*engine));
    }
    LockIfAsked(settings_.model);
    std::unique_ptr<SessionKeeper> sessions;
    if (settings_.sessions) sessions = OpenSessionsOf(*engine, *settings_.sessions);
    return std::make_unique<api::Model>(
        std::make_unique<api::Model::Impl>(std::move(engine), settings_.parallel, settings_.queue,
                                           settings_.chat_format, std::move(sessions)));
  });
}

}  // namespace hearth::cli
