#include "planner/doctor/hardware_age.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <optional>

#include "base/error.h"
#include "planner/doctor/hardware_machine.h"

namespace hearth {
namespace {

constexpr int64_t kDay = 24 * 3600;

std::optional<dev_t> DeviceOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return info.st_dev;
}

}  // namespace

std::vector<std::string> StaleReasons(const HardwareProfile& profile, const std::string& model,
                                      int64_t now_s) {
  std::vector<std::string> reasons;
  const int64_t age = now_s - profile.measured_at_s;
  if (age > kOldProfileSeconds) {
    reasons.push_back(fmt::format("it was measured {} days ago", age / kDay));
  } else if (age < -kDay) {
    reasons.push_back("it was measured in the future, by the clock of this machine");
  }
  const std::string system = SystemName();
  if (profile.system != system) {
    reasons.push_back(fmt::format("it was measured under {}, and this is {}",
                                  Printable(profile.system), Printable(system)));
  }
  const auto measured = DeviceOf(profile.storage.directory), read = DeviceOf(model);
  if (measured && read && *measured != *read) {
    reasons.push_back(fmt::format("reads were measured in {}, which is on another disk than {}",
                                  Printable(profile.storage.directory), Printable(model)));
  }
  return reasons;
}

}  // namespace hearth
