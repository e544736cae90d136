// The hearth program: parses the command line and runs one command.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/help_format.h"
#include "cli/version.h"

namespace {

using namespace hearth;
using namespace hearth::cli;

void BuildApp(CLI::App& app, Action& action) {
  app.formatter(MakeHelpFormatter());
  app.set_version_flag("--version", VersionLine(), "Print the version and exit");
  app.require_subcommand(0, 1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("hearth: ") + error.what() + " (see 'hearth help')\n";
  });
  app.footer(
      "Sizes take K, M, G (2^10, 2^20, 2^30): --memory 2.5G.\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage.");
  AddRunCommand(app, action);
  AddInspectCommand(app, action);
  AddEvalCommand(app, action);
  AddTokenizeCommand(app, action);
  AddSynthCommand(app, action);
  AddHelpCommand(app, action);
}

int Fail(int code, const char* what) {
  std::fprintf(stderr, "hearth: %s\n", what);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that went away shows as a write error
  CLI::App app("Hearth runs large language models inside a memory limit you set.", "hearth");
  Action action;
  try {
    BuildApp(app, action);
    app.parse(argc, argv);
    if (!action) {
      std::fputs(HelpText(app).c_str(), stderr);
      return kExitUsage;
    }
    return action();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  } catch (const UsageError& error) {
    return Fail(kExitUsage, error.what());
  } catch (const std::bad_alloc&) {
    return Fail(kExitFailed, "the system has no more memory to give");
  } catch (const std::exception& error) {
    return Fail(kExitFailed, error.what());
  }
}
