// hearth plan: what goes where before anything runs.
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/plan_model.h"
#include "cli/plan_placement.h"

namespace hearth::cli {
namespace {

struct PlanCommand {
  PlanArguments plan;
  PlacementArguments placement;
  bool json = false;
};

}  // namespace

void AddPlanCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App* command = app.add_subcommand(
      "plan", "Predict how fast a model will run in a given memory, and save the best settings");
  command
      ->add_option("MODEL", options->plan.wishes.model.model,
                   "a model file (GGUF), a shape (hearth help synth names them; opt-6.7b to "
                   "opt-175b, falcon-40b) or a shape file (.json)")
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
    for (const char* name : PlanOptionNames()) {
      if (is_placement && command->count(name) > 0) {
        throw UsageError(std::string(name) + " has no effect with --device-memory");
      }
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
    action = [options, is_placement, is_shape] {
      const ModelOptions& model = options->plan.wishes.model;
      if (is_placement) {
        return PlanPlacement(model.model, model.memory_bytes, options->placement, options->json);
      }
      return is_shape ? PlanShape(options->plan, options->json)
                      : PlanModel(options->plan, options->json);
    };
  });
}

}  // namespace hearth::cli
