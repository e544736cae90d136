// hearth list and hearth rm: the models that are here.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/models/cache_folder.h"
#include "cli/models/find_model.h"
#include "cli/options/option_values.h"
#include "cli/options/text_input.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/line_editor.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"
#include "engine/load/model.h"

namespace hearth::cli {
namespace {

// A model, and what its header says.
struct ListedModel {
  hub::LocalModel model;
  std::string architecture;  // empty: not known
  std::string reason;        // why it does not run; empty: it does
};

ListedModel Look(hub::LocalModel model) {
  ListedModel listed{.model = std::move(model)};
  if (!listed.model.is_whole()) {
    listed.reason =
        fmt::format("only a part is here; 'hearth get {}' fetches the rest", listed.model.Name());
    return listed;
  }
  try {
    const GgufFile file = GgufFile::Open(listed.model.paths.front());
    if (const auto* name = file.metadata().FindString("general.architecture")) {
      listed.architecture = *name;
    }
    PlanLoad(file);
  } catch (const Error& error) {
    listed.reason = error.what();
    // The path is in the same line.
    const std::string path = listed.model.paths.front() + ": ";
    if (listed.reason.starts_with(path)) listed.reason.erase(0, path.size());
  }
  return listed;
}

nlohmann::ordered_json ListedJson(const ListedModel& listed) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  return {{"name", listed.model.Name()},
          {"bytes", listed.model.bytes},
          {"quant", text_or_null(listed.model.files.quant)},
          {"architecture", text_or_null(listed.architecture)},
          {"complete", listed.model.is_whole()},
          {"runnable", listed.reason.empty()},
          {"reason", text_or_null(listed.reason)},
          {"files", listed.model.paths}};
}

std::string ListText(const std::vector<ListedModel>& models) {
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows = {{"NAME", "SIZE", "QUANT", "ARCHITECTURE", "RUNS"}};
  for (const ListedModel& listed : models) {
    const auto or_dash = [](const std::string& text) {
      return text.empty() ? std::string("-") : Printable(text);
    };
    rows.push_back({Printable(listed.model.Name(), 300), FormatSize(listed.model.bytes),
                    or_dash(listed.model.files.quant), or_dash(listed.architecture),
                    listed.reason.empty() ? "yes" : "no: " + Printable(listed.reason, 300)});
  }
  std::array<size_t, 5> widths = {};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:>{}}  {:<{}}  {:<{}}  {}\n", row[0], widths[0], row[1],
                        widths[1], row[2], widths[2], row[3], widths[3], row[4]);
  }
  return text;
}

int List(bool json) {
  const std::string folder = RequireModelsFolder();
  std::vector<ListedModel> models;
  for (hub::LocalModel& model : hub::ListModels(folder)) {
    if (!model.files.is_helper) models.push_back(Look(std::move(model)));
  }
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const ListedModel& model : models) list.push_back(ListedJson(model));
    WriteOutput(DumpJson({{"folder", folder}, {"models", list}}));
  } else if (models.empty()) {
    PrintNotice(
        fmt::format("There are no models in {}; 'hearth get OWNER/REPO' fetches one.\n", folder));
  } else {
    WriteOutput(ListText(models));
  }
  return kExitDone;
}

// Whether the user says so.
bool Confirms(const hub::LocalModel& model) {
  if (!StandardInputIsTerminal()) {
    throw UsageError("rm: there is no terminal to ask on; --yes removes without a question");
  }
  CatchInterrupts();
  LineEditor editor(fmt::format("Remove {} ({})? [y/N] ", model.Name(), FormatSize(model.bytes)),
                    "");
  std::string line;
  if (editor.Read(line) != LineEditor::Result::kMessage) {
    PrintNotice("\n");
    return false;
  }
  return hub::IsSameName(line, "y") || hub::IsSameName(line, "yes");
}

int Remove(const std::vector<std::string>& names, bool is_sure) {
  const std::string folder = RequireModelsFolder();
  const std::vector<hub::LocalModel> models = hub::ListModels(folder);
  std::vector<const hub::LocalModel*> chosen;  // all are found before the first is removed
  for (const std::string& name : names) {
    const hub::LocalModel* model = &FindOne(models, name, false);
    if (std::find(chosen.begin(), chosen.end(), model) == chosen.end()) chosen.push_back(model);
  }
  for (const hub::LocalModel* model : chosen) {
    if (!is_sure && !Confirms(*model)) {
      PrintNotice("Nothing was removed.\n");
      return kExitFailed;
    }
    hub::RemoveModel(folder, *model);
    WriteOutput(fmt::format("removed {} ({})\n", model->Name(), FormatSize(model->bytes)));
  }
  return kExitDone;
}

}  // namespace

void AddListCommand(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("list", "Show the models that 'hearth get' fetched, and whether they run");
  command->add_flag("--json", *json, "print one JSON document");
  command->callback([json, &action] { action = [json] { return List(*json); }; });
}

void AddRemoveCommand(CLI::App& app, Action& action) {
  struct RemoveOptions {
    std::vector<std::string> names;
    bool yes = false;
  };
  auto options = std::make_shared<RemoveOptions>();
  CLI::App* command = app.add_subcommand("rm", "Remove models that 'hearth get' fetched");
  command->add_option("MODEL", options->names, "names, as 'hearth list' shows them")
      ->required()
      ->check(NotEmpty());
  command->add_flag("--yes", options->yes, "do not ask");
  command->callback(
      [options, &action] { action = [options] { return Remove(options->names, options->yes); }; });
}

}  // namespace hearth::cli
