// hearth get: fetches a model from a hub.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/option_values.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "hub/fetch.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

struct GetOptions {
  std::string model;
  bool list = false;
  bool json = false;
};

// A line of its own for each thing that is done to the files.
class FetchProgress {
 public:
  void Update(uint64_t done, uint64_t total, const std::string& note) {
    done_ = done;
    if (!line_ || note != note_) {
      line_.reset();
      line_.emplace(note.empty() ? "fetching" : note, ProgressUnit::kBytes, done);
      note_ = note;
    }
    line_->Update(done, total);
  }
  // For a sentence between.
  void Hide() { line_.reset(); }
  bool has_some() const { return done_ > 0; }

 private:
  std::optional<ProgressLine> line_;
  std::string note_;
  uint64_t done_ = 0;
};

hub::ModelName NameToGet(const std::string& model) {
  if (auto name = hub::ParseModelName(model)) return *name;
  throw UsageError("MODEL: expected OWNER/REPO or OWNER/REPO:QUANT, as on huggingface.co, found '" +
                   Printable(model, 200) + "'");
}

uint64_t SizeOf(const hub::Repository& repository, const hub::ModelFiles& model) {
  uint64_t bytes = 0;
  for (const std::string& path : model.paths) bytes += repository.File(path).bytes;
  return bytes;
}

// What there is to get.
int ListRemote(const hub::Repository& repository, bool json) {
  Json list = Json::array();
  std::string text;
  for (const hub::ModelFiles& model : repository.Models()) {
    if (model.is_helper) continue;
    const std::string name = repository.name + ":" + model.label;
    const uint64_t bytes = SizeOf(repository, model);
    list.push_back({{"name", name},
                    {"bytes", bytes},
                    {"quant", model.quant.empty() ? Json() : Json(model.quant)},
                    {"parts", model.num_parts}});
    text += fmt::format("{:>10}  {}\n", FormatSize(bytes), name);
  }
  WriteOutput(json ? DumpJson({{"repository", repository.name}, {"models", list}}) : text);
  return kExitDone;
}

hub::FetchedModel Fetch(hub::Hub& hub, const hub::Repository& repository,
                        const hub::ModelFiles& model, const std::string& name) {
  FetchProgress progress;
  hub::FetchOptions fetch;
  fetch.folder = RequireModelsFolder();
  fetch.cancel = &InterruptFlag();
  fetch.progress = [&](uint64_t done, uint64_t total, const std::string& note) {
    progress.Update(done, total, note);
  };
  fetch.notice = [&](const std::string& sentence) {
    progress.Hide();
    PrintSentence(sentence);
  };
  try {
    return FetchModel(hub, repository, model, fetch);
  } catch (const Error& error) {
    const bool goes_on = error.code() == ErrorCode::kIo || error.code() == ErrorCode::kCancelled;
    if (!goes_on || !progress.has_some()) throw;
    throw Error(error.code(), "",
                fmt::format("{}; what has come stays, and 'hearth get {}' goes on from there",
                            Sentence(error), name));
  }
}

int Get(const GetOptions& options) {
  const hub::ModelName wanted = NameToGet(options.model);
  CatchInterrupts(true);
  hub::Hub hub(HubOfEnvironment(&InterruptFlag()));
  const hub::Repository repository = hub.List(wanted.repository);
  if (options.list) return ListRemote(repository, options.json);
  const std::vector<hub::ModelFiles> models = repository.Models();
  const hub::ModelFiles& model = hub::ChooseModel(models, wanted);
  const std::string name = repository.name + ":" + model.label;
  const hub::FetchedModel fetched = Fetch(hub, repository, model, name);
  if (options.json) {
    WriteOutput(DumpJson({{"name", name},
                          {"bytes", fetched.bytes},
                          {"fetched_bytes", fetched.fetched_bytes},
                          {"files", fetched.paths}}));
    return kExitDone;
  }
  WriteOutput(fmt::format("{}  {}, {}\n{}\n", name, FormatSize(fetched.bytes),
                          fetched.fetched_bytes == 0 ? "is here already" : "is here",
                          fetched.paths.front()));
  return kExitDone;
}

}  // namespace

void AddGetCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<GetOptions>();
  CLI::App* command = app.add_subcommand("get", "Fetch a model from Hugging Face, or another hub");
  command
      ->add_option("MODEL", options->model,
                   "OWNER/REPO, which takes Q4_K_M or what is nearest to it, or OWNER/REPO:QUANT, "
                   "OWNER/REPO:FILE, or the model's address on the hub")
      ->required()
      ->check(NotEmpty());
  command->add_flag("--list", options->list, "show what the repository has, and fetch nothing");
  command->add_flag("--json", options->json, "print one JSON document");
  command->footer(
      "Example: hearth get bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M\n"
      "A broken download goes on where it ended. Every file is checked by its hash.\n"
      "HF_ENDPOINT names another hub, HF_TOKEN is your token for gated and private models,\n"
      "https_proxy a proxy, HEARTH_MODELS the folder for models\n"
      "(~/.local/share/hearth/models).");
  command->callback([options, &action] { action = [options] { return Get(*options); }; });
}

}  // namespace hearth::cli
