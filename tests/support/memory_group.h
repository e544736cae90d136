// A limit that the system keeps to, for tests of memory.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/cgroup.h"

namespace hearth {

// A memory cgroup (v1) of its own inside that of this process.
class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t limit_bytes) {
    ForEachCgroup("memory", [&](const std::string& directory, bool is_v2) {
      if (is_v2 || !home_.empty()) return;
      std::error_code failure;
      const std::string path = directory + "/hearth-test-" + std::to_string(getpid());
      if (!std::filesystem::create_directory(path, failure)) return;
      home_ = directory;
      path_ = path;
    });
    if (path_.empty()) return;
    is_usable_ = Write(path_ + "/memory.limit_in_bytes", limit_bytes) &&
                 Write(path_ + "/cgroup.procs", static_cast<uint64_t>(getpid()));
    // No swap either; some kernels have none to limit.
    Write(path_ + "/memory.memsw.limit_in_bytes", limit_bytes);
  }
  ~MemoryGroup() {
    if (path_.empty()) return;
    Write(home_ + "/cgroup.procs", static_cast<uint64_t>(getpid()));
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  // Whether this process, and what it starts, is in it.
  bool is_usable() const { return is_usable_; }

 private:
  static bool Write(const std::string& path, uint64_t number) {
    std::ofstream file(path);
    file << number;
    return static_cast<bool>(file.flush());
  }

  std::string home_, path_;
  bool is_usable_ = false;
};

}  // namespace hearth
