#include "cli/measure/measure_machine.h"

#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"
#include "cli/models/cache_folder.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

// What was measured is worth printing where that fails.
void SaveForOthers(const std::string& text) {
  const std::string path = SavedHardwarePath();
  std::string why_not = "neither XDG_CACHE_HOME nor HOME names a folder";
  if (!path.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(CacheFolder(), failed);
    try {
      WriteFileAtomically(path, text);
      return;
    } catch (const Error& error) {
      why_not = error.what();
    }
  }
  PrintSentence("the profile is not saved for other commands: " + why_not);
}

}  // namespace

HardwareProfile MeasureMachine(ProfilerOptions options) {
  options.programs = accel::UsersProgramsFolder();
  ProgressLine progress("measuring", ProgressUnit::kShare);
  HardwareProfile profile = MeasureHardware(
      options, [&](double done, const std::string& what) { progress.UpdateShare(done, what); });
  SaveForOthers(DumpJson(HardwareJson(profile)));
  return profile;
}

}  // namespace hearth::cli
