#include "base/memory_info.h"

#include <link.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/cgroup.h"

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_purge_allocator();  // of the runtime; GCC has no header for it
#endif

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

// Page cache that the kernel gives up when the group needs memory: `name` of its memory.stat.
int64_t ReclaimableBytes(const std::string& directory, const char* name) {
  std::ifstream stat(directory + "/memory.stat");
  std::string field;
  int64_t value = 0;
  while (stat >> field >> value) {
    if (field == name) return value;
  }
  return 0;
}

// What may still be charged to one cgroup; nothing where it has no limit.
std::optional<uint64_t> HeadroomOf(const std::string& directory, bool is_v2) {
  const auto limit = ReadNumberFile(directory + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto usage =
      ReadNumberFile(directory + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !usage) return std::nullopt;
  const int64_t reclaimable =
      ReclaimableBytes(directory, is_v2 ? "inactive_file" : "total_inactive_file");
  return static_cast<uint64_t>(std::max<int64_t>(0, *limit - *usage + reclaimable));
}

// Bytes that the program and its libraries have in files and are loaded from there.
uint64_t LoadedFileBytes() {
  uint64_t bytes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* sum) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = object->dlpi_phdr[i];
          if (part.p_type == PT_LOAD) *static_cast<uint64_t*>(sum) += part.p_filesz;
        }
        return 0;
      },
      &bytes);
  return bytes;
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  uint64_t available = ProcField("/proc/meminfo", "MemAvailable").value_or(UINT64_MAX);
  ForEachCgroup("memory", [&](const std::string& directory, bool is_v2) {
    available = std::min(available, HeadroomOf(directory, is_v2).value_or(UINT64_MAX));
  });
  return available;
}

uint64_t TotalMemoryBytes() { return ProcField("/proc/meminfo", "MemTotal").value_or(0); }

uint64_t ResidentBytes() { return ProcField("/proc/self/status", "VmRSS").value_or(0); }

uint64_t PeakResidentBytes() { return ProcField("/proc/self/status", "VmHWM").value_or(0); }

void ReturnFreedMemory() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_purge_allocator();
#elif defined(__GLIBC__)
  malloc_trim(0);  // others keep little
#endif
}

uint64_t ProgramBytes() {
  ReturnFreedMemory();
  const uint64_t of_files = ProcField("/proc/self/status", "RssFile").value_or(0);
  return ResidentBytes() - of_files + std::max(of_files, LoadedFileBytes());
}

}  // namespace hearth
