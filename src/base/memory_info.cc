#include "base/memory_info.h"

#include <link.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
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

// The fields of a group's memory.stat that begin a line with one of these names, added up.
int64_t SumOfStat(const std::string& directory, std::initializer_list<const char*> names) {
  std::ifstream stat(directory + "/memory.stat");
  std::string field;
  int64_t value = 0, sum = 0;
  while (stat >> field >> value) {
    for (const char* name : names) sum += field == name ? value : 0;
  }
  return sum;
}

// The group's limit. Under v2 that is also memory.high: the kernel slows a group above it down
// until it hardly runs.
std::optional<int64_t> LimitOfGroup(const std::string& directory, bool is_v2) {
  if (!is_v2) return ReadNumberFile(directory + "/memory.limit_in_bytes");
  const auto most = ReadNumberFile(directory + "/memory.max");
  const auto high = ReadNumberFile(directory + "/memory.high");
  if (!most || !high) return most ? most : high;
  return std::min(*most, *high);
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

// Of the code and constants that are not mapped yet, what a program may come to use. All of it is
// some 17 MiB, of which a run maps 9 to 10 and a server 11; some 8 are mapped when a model is
// planned.
constexpr uint64_t kCodeToComeBytes = uint64_t{4} << 20;

// Where the user sets no limit, the rest of the machine keeps 1 / kMarginShare of the available
// memory, but not more than kMostMarginBytes.
constexpr uint64_t kMarginShare = 8;
constexpr uint64_t kMostMarginBytes = uint64_t{256} << 20;

}  // namespace

std::optional<uint64_t> CgroupHeadroomBytes(const std::string& directory, bool is_v2) {
  const auto limit = LimitOfGroup(directory, is_v2);
  const auto usage =
      ReadNumberFile(directory + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !usage) return std::nullopt;
  // The kernel gives up page cache when the group needs memory, also what was read twice; what is
  // mapped is somebody's code.
  const int64_t cache = is_v2 ? SumOfStat(directory, {"inactive_file", "active_file"})
                              : SumOfStat(directory, {"total_inactive_file", "total_active_file"});
  const int64_t mapped = SumOfStat(directory, {is_v2 ? "file_mapped" : "total_mapped_file"});
  const int64_t taken = *usage - std::max<int64_t>(0, cache - mapped);
  return static_cast<uint64_t>(std::max<int64_t>(0, *limit - std::max<int64_t>(0, taken)));
}

uint64_t MemoryLimitBytes() {
  uint64_t least = ProcField("/proc/meminfo", "MemTotal").value_or(UINT64_MAX);
  ForEachCgroup("memory", [&](const std::string& directory, bool is_v2) {
    const auto limit = LimitOfGroup(directory, is_v2);
    if (limit && *limit >= 0) least = std::min(least, static_cast<uint64_t>(*limit));
  });
  return least;
}

uint64_t DefaultMemoryBytes() {
  const uint64_t available = AvailableMemoryBytes();
  return ResidentBytes() + available - std::min(available / kMarginShare, kMostMarginBytes);
}

uint64_t AvailableMemoryBytes() {
  uint64_t available = ProcField("/proc/meminfo", "MemAvailable").value_or(UINT64_MAX);
  ForEachCgroup("memory", [&](const std::string& directory, bool is_v2) {
    available = std::min(available, CgroupHeadroomBytes(directory, is_v2).value_or(UINT64_MAX));
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

uint64_t HeapBytes() {
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
#else
  return 0;
#endif
}

uint64_t ProgramBytes() {
  ReturnFreedMemory();
  const uint64_t mapped = ProcField("/proc/self/status", "RssFile").value_or(0);
  const uint64_t all = std::max(mapped, LoadedFileBytes());
  return ResidentBytes() - mapped + std::min(mapped + kCodeToComeBytes, all);
}

}  // namespace hearth
