// The hearth program: parses the command line and runs one command.
#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/help_format.h"
#include "cli/screen/output.h"
#include "cli/version.h"

namespace {

using namespace hearth;
using namespace hearth::cli;

void BuildApp(CLI::App& app, Action& action) {
  app.formatter(MakeHelpFormatter());
  app.set_version_flag("--version", VersionLine(), "Print the version and exit");
  app.require_subcommand(0, 1);
  app.footer(
      "Sizes take K, M, G (2^10, 2^20, 2^30): --memory 2.5G.\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage.");
  AddRunCommand(app, action);
  AddServeCommand(app, action);
  AddGetCommand(app, action);
  AddListCommand(app, action);
  AddRemoveCommand(app, action);
  AddInspectCommand(app, action);
  AddEvalCommand(app, action);
  AddBenchCommand(app, action);
  AddProfileCommand(app, action);
  AddTokenizeCommand(app, action);
  AddTemplateCommand(app, action);
  AddSynthCommand(app, action);
  AddConvertCommand(app, action);
  AddQuantizeCommand(app, action);
  AddPackCommand(app, action);
  AddPlanCommand(app, action);
  AddDoctorCommand(app, action);
  AddDevicesCommand(app, action);
  AddSimulateCommand(app, action);
  AddEmulateCommand(app, action);
  AddHelpCommand(app, action);
}

int Fail(int code, const std::string& what) {
  PrintSentence(what);
  return code;
}

// Runs the command that the arguments choose, or prints the help or version they ask for.
int Run(CLI::App& app, const Action& action, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    WriteOutput(HelpText(chosen.empty() ? app : *chosen.back()));
    return kExitDone;
  } catch (const CLI::CallForVersion&) {
    WriteOutput(VersionLine() + "\n");
    return kExitDone;
  }
  if (action) return action();
  PrintNotice(HelpText(app));
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  KeepStandardStreams();
  std::signal(SIGPIPE, SIG_IGN);  // a reader that went away shows as a write error
  std::signal(SIGXFSZ, SIG_IGN);  // and so does a file that may not grow further
  CLI::App app("Hearth runs large language models inside a memory limit you set.", "hearth");
  Action action;
  try {
    BuildApp(app, action);
    return Run(app, action, argc, argv);
  } catch (const CLI::ExtrasError&) {
    return Fail(kExitUsage, ExplainExtras(app));
  } catch (const CLI::ParseError& error) {
    return Fail(kExitUsage, std::string(error.what()) + " (see 'hearth help')");
  } catch (const UsageError& error) {
    return Fail(kExitUsage, error.what());
  } catch (const Error& error) {
    return Fail(kExitFailed, Sentence(error));
  } catch (const std::bad_alloc&) {
    return Fail(kExitFailed, "the system has no more memory to give");
  } catch (const std::exception& error) {
    return Fail(kExitFailed, error.what());
  }
}
