#include "base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>

#include "base/cgroup.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace hearth {

#if defined(__x86_64__)
namespace {

struct CpuidRegisters {
  unsigned eax, ebx, ecx, edx;
};

// All zero where the processor has no such leaf.
CpuidRegisters CpuidLeaf(unsigned leaf, unsigned subleaf) {
  CpuidRegisters r{};
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

}  // namespace
#endif

CpuFeatures DetectCpuFeatures() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // GCC and clang know different feature names; F16C and AVX-VNNI are read from the processor.
  // The operating system saves their registers where it saves AVX2's.
  const bool f16c = ((CpuidLeaf(1, 0).ecx >> 29) & 1) != 0;
  f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c &&
           __builtin_cpu_supports("bmi2");
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512cd");
  f.avx512_vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
  f.avx512_bf16 = f.avx512 && __builtin_cpu_supports("avx512bf16");
  f.avx_vnni = f.avx2 && ((CpuidLeaf(7, 1).eax >> 4) & 1) != 0;
#elif defined(__aarch64__)
  f.neon = true;
  f.dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  f.i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#endif
  return f;
}

bool IsAmdProcessor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

namespace {

// Processors' worth of time that one cgroup's quota allows, rounded up; a large number where it
// has none.
int64_t QuotaCpus(const std::string& directory, bool is_v2) {
  std::optional<int64_t> quota, period;
  if (is_v2) {
    std::ifstream file(directory + "/cpu.max");  // "200000 100000" or "max 100000"
    int64_t a = 0, b = 0;
    if (file >> a >> b) quota = a, period = b;
  } else {
    quota = ReadNumberFile(directory + "/cpu.cfs_quota_us");
    period = ReadNumberFile(directory + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return INT64_MAX;
  return (*quota + *period - 1) / *period;
}

}  // namespace

int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int64_t cpus = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = CPU_COUNT(&set);
  ForEachCgroup("cpu", [&](const std::string& directory, bool is_v2) {
    cpus = std::min(cpus, QuotaCpus(directory, is_v2));
  });
  return static_cast<int>(std::max<int64_t>(1, cpus));
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cpus.push_back(i);
  }
  return cpus;
}

bool UseCpus(std::span<const int> cpus) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
    CPU_SET(cpu, &set);
  }
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

bool PinThisThread(int cpu) noexcept { return UseCpus({&cpu, 1}); }

namespace {

struct ProcessorCache {
  int level = 0;
  std::string type;  // "Data", "Instruction" or "Unified"
  uint64_t bytes = 0;
};

// Calls fn with each cache that the first processor sees.
template <class F>
void ForEachCache(F&& fn) {
  for (int index = 0;; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    ProcessorCache cache;
    uint64_t kib = 0;  // "2048K"
    if (!(std::ifstream(folder + "size") >> kib)) return;
    std::ifstream(folder + "level") >> cache.level;
    std::ifstream(folder + "type") >> cache.type;
    cache.bytes = kib * 1024;
    fn(cache);
  }
}

}  // namespace

uint64_t LastLevelCacheBytes() {
  uint64_t largest = 0;
  ForEachCache([&](const ProcessorCache& cache) { largest = std::max(largest, cache.bytes); });
  return largest;
}

uint64_t FirstLevelDataCacheBytes() {
  uint64_t bytes = 0;
  ForEachCache([&](const ProcessorCache& cache) {
    if (cache.level == 1 && cache.type != "Instruction") bytes = cache.bytes;
  });
  return bytes;
}

std::string CpuModelName() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace hearth
