// hearth doctor: what this machine can do, and what of it will hurt.
#include <memory>

#include "cli/commands.h"
#include "cli/measure/doctor_report.h"
#include "cli/measure/measure_machine.h"
#include "cli/models/cache_folder.h"
#include "cli/options/command_files.h"
#include "cli/options/option_values.h"
#include "cli/screen/output.h"
#include "planner/doctor/hardware.h"
#include "planner/doctor/hardware_plot.h"
#include "planner/doctor/hardware_profiler.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

struct DoctorCommand {
  ProfilerOptions profiler;
  std::string output;
  std::string plot;
  bool quick = false;
  bool json = false;
};

int Diagnose(const DoctorCommand& options) {
  // Better known before the measuring.
  CheckFiles({{"--file", options.profiler.file}},
             {{"--output", options.output}, {"--plot", options.plot}});
  CheckFiles({{"the saved profile", SavedHardwarePath()}}, {{"--plot", options.plot}});
  if (!options.output.empty()) CheckWritable(options.output);
  if (!options.plot.empty()) CheckWritable(options.plot);
  const HardwareProfile profile = MeasureMachine(options.profiler);
  const std::string document = DumpJson(HardwareJson(profile));
  if (!options.output.empty()) WriteFileAtomically(options.output, document);
  if (!options.plot.empty()) WriteFileAtomically(options.plot, PlotReads(profile));
  WriteOutput(options.json ? document : HardwareText(profile));
  return kExitDone;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<DoctorCommand>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Measure this machine (cores, memory, disk) and name its bottleneck");
  CLI::Option* directory =
      command
          ->add_option(
              "--dir", options->profiler.directory,
              "folder on the disk that holds your models: a file of 1G is written there, read, "
              "and removed again (default: the current folder)")
          ->option_text("DIR")
          ->check(NotEmpty());
  AddFileOption(*command, "--file", options->profiler.file,
                "large file to read instead, such as a model; nothing is written")
      ->excludes(directory);
  command
      ->add_option_function<int64_t>(
          "--device",
          [options](int64_t index) { options->profiler.device = static_cast<size_t>(index); },
          "measure this device of 'hearth devices' although it is a processor")
      ->option_text("INDEX")
      ->check(WholeIn(0, 4096));
  command->add_flag("--quick", options->quick,
                    "take some seconds instead of half a minute, and be less precise");
  command->add_option("-o,--output", options->output, "file to write the profile to (JSON)")
      ->option_text("HW")
      ->check(NotEmpty());
  AddFileOption(*command, "--plot", options->plot, "picture of the reads to write (SVG)");
  command->add_flag("--json", options->json, "print the profile as one JSON document");
  command->footer(
      "Close other programs first: they would slow the measurement. The profile is also saved as\n"
      "hearth/hardware.json in $XDG_CACHE_HOME (default ~/.cache), where other commands find it.");
  command->callback([options, &action] {
    action = [options] {
      if (options->quick) options->profiler.effort = QuickEffort();
      return Diagnose(*options);
    };
  });
}

}  // namespace hearth::cli
