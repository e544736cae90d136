// hearth plan: what goes where before anything runs.
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/plan_placement.h"

namespace hearth::cli {
namespace {

struct PlanCommand {
  std::string model;
  std::optional<uint64_t> memory_bytes;
  PlacementArguments placement;
  bool json = false;
};

}  // namespace

void AddPlanCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App* command = app.add_subcommand("plan", "Decide where neurons lie before anything runs");
  command
      ->add_option("MODEL", options->model,
                   "a model file (GGUF), a shape (hearth help synth names them; opt-6.7b to "
                   "opt-175b, falcon-40b) or a shape file (.json)")
      ->required()
      ->check(NotEmpty());
  AddMemoryOption(*command, options->memory_bytes)
      ->description("most memory to use on the host (default: what is needed)");
  AddPlacementOptions(*command, options->placement);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, command, &action] {
    CheckPlacementUsage(*command, options->placement);
    if (!options->placement.device_bytes) {
      throw UsageError("plan needs --device-memory");
    }
    action = [options] {
      return PlanPlacement(options->model, options->memory_bytes, options->placement,
                           options->json);
    };
  });
}

}  // namespace hearth::cli
