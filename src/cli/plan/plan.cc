// hearth plan: what goes where before anything runs.
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/option_values.h"
#include "cli/plan/plan_model.h"
#include "cli/plan/plan_placement.h"
#include "cli/screen/output.h"

namespace hearth::cli {
namespace {

struct PlanCommand {
  PlanArguments plan;
  PlacementArguments placement;
  bool json = false;
};

// Of a model that is a file by now.
int PlanFile(const PlanCommand& options) {
  const ModelOptions& model = options.plan.wishes.model;
  if (options.placement.device_bytes && options.plan.output.empty()) {
    return PlanPlacement(model.model, model.memory_bytes, options.placement, options.json);
  }
  PlanArguments plan = options.plan;
  if (options.placement.device_bytes) plan.placement = options.placement;
  return PlanModel(plan, options.json);
}

// In a message: the name that the user gave, not the file that stands for it.
std::string WithName(std::string sentence, const std::string& path, const std::string& name) {
  for (size_t at = sentence.find(path); at != std::string::npos; at = sentence.find(path)) {
    sentence.replace(at, path.size(), name);
  }
  return sentence;
}

// Of a model on the hub, from its header.
int PlanRemote(PlanCommand& options, const hub::ModelName& remote) {
  PlanWishes& wishes = options.plan.wishes;
  if (!options.plan.output.empty()) {
    throw UsageError("--output: only a plan for a model that is here can be obeyed: 'hearth get " +
                     remote.Text() + "' fetches it");
  }
  if (!wishes.text.empty() || wishes.tokens || wishes.record) {
    throw UsageError("--text, --tokens and --record need the model itself: 'hearth get " +
                     remote.Text() + "' fetches it");
  }
  const SavedHeader header(remote);
  wishes.model.model = header.path();
  options.plan.from_header = true;
  wishes.is_header = true;
  try {
    return PlanFile(options);
  } catch (const UsageError& error) {
    throw UsageError(WithName(error.what(), header.path(), remote.Text()));
  } catch (const Error& error) {
    throw Error(error.code(), "", WithName(Sentence(error), header.path(), remote.Text()));
  }
}

int Plan(PlanCommand& options) {
  std::string& model = options.plan.wishes.model.model;
  if (NamesShape(model)) {
    return options.placement.device_bytes ? PlanFile(options)
                                          : PlanShape(options.plan, options.json);
  }
  if (const auto remote = FindRemoteName(model)) return PlanRemote(options, *remote);
  model = FindModel(model);
  return PlanFile(options);
}

}  // namespace

void AddPlanCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App* command = app.add_subcommand(
      "plan", "Predict how fast a model will run in a given memory, and save the best settings");
  command
      ->add_option(
          "MODEL", options->plan.wishes.model.model,
          "a model file (GGUF) or folder, the name of a model that 'hearth list' shows, "
          "OWNER/REPO[:QUANT] "
          "on the hub (its header is read, nothing is fetched), a shape (hearth help synth "
          "names them; opt-6.7b to opt-175b, falcon-40b) or a shape file (.json)")
      ->required()
      ->check(NotEmpty());
  AddMemoryOption(*command, options->plan.wishes.model.memory_bytes)
      ->description("most memory to use (default: what is free)");
  AddActivationOption(*command, options->plan.wishes.model.activation);
  AddPlanOptions(*command, options->plan);
  AddPlacementOptions(*command, options->placement);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, command, &action] {
    CheckPlacementUsage(*command, options->placement);
    const bool is_placement = options->placement.device_bytes.has_value();
    const bool is_obeyed = command->count("--output") > 0;
    for (const char* name : PlanOptionNames()) {
      if (is_placement && !is_obeyed && command->count(name) > 0) {
        throw UsageError(std::string(name) +
                         " has no effect with --device-memory, unless --output saves a plan");
      }
    }
    if (is_placement && is_obeyed && options->placement.dense == DensePlace::kDevice) {
      throw UsageError(
          "--dense device has no effect with --output: the plan decides where attention is");
    }
    const ModelOptions& wished = options->plan.wishes.model;
    if (wished.activation && NamesShape(wished.model)) {
      throw UsageError("--activation has no effect with a shape, which says its own");
    }
    options->placement.activation = wished.activation;
    const bool is_shape = NamesShape(wished.model);
    for (const char* name : {"--text", "--tokens", "--record", "--output"}) {
      if (is_shape && command->count(name) > 0) {
        throw UsageError(std::string(name) + " has no effect with a shape: only a file can be run");
      }
    }
    action = [options] { return Plan(*options); };
  });
}

}  // namespace hearth::cli
