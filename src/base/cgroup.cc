#include "base/cgroup.h"

#include <fstream>

namespace hearth {
namespace {

void WalkUp(const std::string& root, std::string path, bool is_v2,
            const std::function<void(const std::string&, bool)>& fn) {
  for (;;) {
    if (!path.empty() && path.back() == '/') path.pop_back();
    fn(root + path, is_v2);
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

void ForEachCgroup(const std::string& controller,
                   const std::function<void(const std::string&, bool)>& fn) {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    // "4:memory:/path" or "3:cpu,cpuacct:/path" in v1, "0::/path" in v2.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      WalkUp("/sys/fs/cgroup", path, true, fn);
    } else if (controllers.find("," + controller + ",") != std::string::npos) {
      WalkUp("/sys/fs/cgroup/" + controller, path, false, fn);
    }
  }
}

std::optional<int64_t> ReadNumberFile(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

}  // namespace hearth
