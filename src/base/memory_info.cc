#include "base/memory_info.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace hearth {
namespace {

// Value of a "Name:   123 kB" line of a /proc file, in bytes.
std::optional<uint64_t> ProcField(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name + ":", 0) != 0) continue;
    std::istringstream fields(line.substr(name.size() + 1));
    uint64_t kib = 0;
    if (fields >> kib) return kib * 1024;
  }
  return std::nullopt;
}

// A file that holds one number; nothing where it is missing or says "max".
std::optional<uint64_t> NumberFile(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

uint64_t Difference(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// What is left in the cgroup directories from `path` up to the hierarchy's root.
uint64_t CgroupHeadroom(const std::string& root, std::string path, const char* limit_name,
                        const char* usage_name) {
  uint64_t headroom = UINT64_MAX;
  for (;;) {
    const auto limit = NumberFile(root + path + "/" + limit_name);
    const auto usage = NumberFile(root + path + "/" + usage_name);
    if (limit && usage) headroom = std::min(headroom, Difference(*limit, *usage));
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return headroom;
    path.resize(slash);
  }
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  uint64_t available = ProcField("/proc/meminfo", "MemAvailable").value_or(UINT64_MAX);
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    // "4:memory:/path" in v1, "0::/path" in v2.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers == "memory") {
      available =
          std::min(available, CgroupHeadroom("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                             "memory.usage_in_bytes"));
    } else if (controllers.empty()) {
      available = std::min(available,
                           CgroupHeadroom("/sys/fs/cgroup", path, "memory.max", "memory.current"));
    }
  }
  return available;
}

uint64_t ResidentBytes() { return ProcField("/proc/self/status", "VmRSS").value_or(0); }

uint64_t PeakResidentBytes() { return ProcField("/proc/self/status", "VmHWM").value_or(0); }

}  // namespace hearth
