// hearth help [command].
#include <memory>

#include "cli/commands.h"
#include "cli/help_format.h"
#include "cli/output.h"

namespace hearth::cli {

void AddHelpCommand(CLI::App& app, Action& action) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("help", "Explain a command");
  command->add_option("COMMAND", *name, "the command to explain");
  command->callback([name, &app, &action] {
    action = [name, &app] {
      if (name->empty()) {
        WriteOutput(HelpText(app));
        return kExitDone;
      }
      for (const CLI::App* chosen : app.get_subcommands([](CLI::App*) { return true; })) {
        if (chosen->get_name() != *name) continue;
        WriteOutput(HelpText(*chosen));
        return kExitDone;
      }
      throw UsageError("there is no command '" + *name + "'; 'hearth help' lists them");
    };
  });
}

}  // namespace hearth::cli
