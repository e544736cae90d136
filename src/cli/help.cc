// hearth help [command].
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/help_format.h"
#include "cli/screen/output.h"

namespace hearth::cli {

void AddHelpCommand(CLI::App& app, Action& action) {
  auto name = std::make_shared<std::string>();
  auto as_table = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("help", "Explain a command");
  command->add_option("COMMAND", *name, "the command to explain");
  command->add_flag("--table", *as_table,
                    "the same in lines of tab-separated fields, for programs");
  command->callback([name, as_table, &app, &action] {
    action = [name, as_table, &app] {
      const auto write = [&](const CLI::App& chosen) {
        WriteOutput(*as_table ? HelpTable(chosen) : HelpText(chosen));
        return kExitDone;
      };
      if (name->empty()) return write(app);
      std::vector<std::string> names;
      for (const CLI::App* chosen : app.get_subcommands([](CLI::App*) { return true; })) {
        if (chosen->get_name() == *name) return write(*chosen);
        names.push_back(chosen->get_name());
      }
      const std::string meant = Nearest(*name, names);
      throw UsageError("there is no command '" + Printable(*name) + "'" +
                       (meant.empty() ? "" : "; did you mean '" + meant + "'?") +
                       " ('hearth help' lists them)");
    };
  });
}

}  // namespace hearth::cli
