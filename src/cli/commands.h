// The commands of the `hearth` program: one file each, registered in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace hearth::cli {

// What the command line asked for; returns the exit code. Set by the chosen command's parser.
using Action = std::function<int()>;

void AddRunCommand(CLI::App& app, Action& action);
void AddServeCommand(CLI::App& app, Action& action);
void AddGetCommand(CLI::App& app, Action& action);
void AddListCommand(CLI::App& app, Action& action);
void AddRemoveCommand(CLI::App& app, Action& action);
void AddInspectCommand(CLI::App& app, Action& action);
void AddEvalCommand(CLI::App& app, Action& action);
void AddBenchCommand(CLI::App& app, Action& action);
void AddProfileCommand(CLI::App& app, Action& action);
void AddTokenizeCommand(CLI::App& app, Action& action);
void AddTemplateCommand(CLI::App& app, Action& action);
void AddSynthCommand(CLI::App& app, Action& action);
void AddConvertCommand(CLI::App& app, Action& action);
void AddQuantizeCommand(CLI::App& app, Action& action);
void AddPackCommand(CLI::App& app, Action& action);
void AddPlanCommand(CLI::App& app, Action& action);
void AddDoctorCommand(CLI::App& app, Action& action);
void AddDevicesCommand(CLI::App& app, Action& action);
void AddSimulateCommand(CLI::App& app, Action& action);
void AddEmulateCommand(CLI::App& app, Action& action);
void AddHelpCommand(CLI::App& app, Action& action);

// Exit codes, documented in `hearth help`.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// A flag that would do nothing, or flags that contradict each other: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace hearth::cli
