#include "planner/doctor/hardware_machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/cpu.h"
#include "base/memory_info.h"
#include "kernels/dispatch.h"
#include "kernels/kernel_table.h"
#include "storage/async/uring_file.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

constexpr int kIpcLockCapability = 14;  // CAP_IPC_LOCK: locks whatever it likes

// What follows "Name:" and blanks in the first line of `path` that begins with it.
std::optional<std::string> FieldOf(const fs::path& path, const std::string& name,
                                   const std::string& separator) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name + separator, 0) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", name.size() + separator.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return std::nullopt;
}

bool MayLockAnything() {
  const auto effective = FieldOf("/proc/self/status", "CapEff", ":");
  if (!effective) return false;
  return (std::strtoull(effective->c_str(), nullptr, 16) >> kIpcLockCapability & 1) != 0;
}

double LoadAverage() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

// File names in a folder, sorted; none where it is missing.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether it is `prefix` and a number.
bool IsNumbered(std::string_view name, std::string_view prefix) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return name.size() > prefix.size() && name.substr(0, prefix.size()) == prefix &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                     is_digit);
}

}  // namespace

std::optional<uint64_t> LockableMemoryBytes() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  if (MayLockAnything()) return std::nullopt;
  return limit.rlim_cur;
}

std::vector<std::string> ListAccelerators(const fs::path& root) {
  std::vector<std::string> found;
  // The driver has a folder per device, by bus address, which is there before the device file is.
  for (const std::string& address : NamesIn(root / "proc/driver/nvidia/gpus")) {
    const auto model =
        FieldOf(root / "proc/driver/nvidia/gpus" / address / "information", "Model", ":");
    found.push_back(model.value_or("NVIDIA " + address));
  }
  const bool has_nvidia_names = !found.empty();
  for (const std::string& name : NamesIn(root / "dev")) {
    if (!has_nvidia_names && IsNumbered(name, "nvidia")) found.push_back(name);
  }
  for (const std::string& name : NamesIn(root / "dev/dri")) {
    if (!IsNumbered(name, "renderD")) continue;
    const auto driver =
        FieldOf(root / "sys/class/drm" / name / "device/uevent", "DRIVER", "=").value_or("");
    if (driver == "nvidia" && !found.empty()) continue;  // counted above
    found.push_back(driver.empty() ? name : name + " (" + driver + ")");
  }
  return found;
}

std::string SystemName() {
  utsname name = {};
  if (uname(&name) != 0) return "";
  return std::string(name.sysname) + " " + name.release;
}

void DescribeMachine(HardwareProfile& profile) {
  const kernels::KernelTable& table = kernels::BestKernels(DetectCpuFeatures());
  profile.cpu_model = CpuModelName();
  profile.system = SystemName();
  profile.isa = table.isa;
  profile.cpus = AvailableCpus();
  profile.machine_cpus = std::max(profile.cpus, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  profile.memory_bytes = TotalMemoryBytes();
  profile.available_memory_bytes = AvailableMemoryBytes();
  profile.load_average = LoadAverage();
  profile.mlock_limit_bytes = LockableMemoryBytes();
  profile.has_io_uring = WhyNoUring().empty();
  profile.accelerators = ListAccelerators();
}

}  // namespace hearth
