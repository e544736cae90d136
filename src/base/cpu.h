// What the processor can do and how much of it this process may use.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hearth {

// Instruction sets that kernels are built for. Filled once per call from the processor (and, for
// AVX, from what the operating system saves).
struct CpuFeatures {
  bool avx2 = false;         // AVX2 with FMA and F16C
  bool avx_vnni = false;     // 256-bit VPDPBUSD in VEX form
  bool avx512 = false;       // AVX-512 F, BW, DQ, VL, CD
  bool avx512_vnni = false;  // VPDPBUSD on 512 bits
  bool avx512_bf16 = false;
  bool neon = false;
  bool dotprod = false;
  bool i8mm = false;
};

CpuFeatures DetectCpuFeatures();

// Whether AMD made it: some things cost otherwise there than elsewhere, with the same instructions.
bool IsAmdProcessor();

// Processors this process may use at once: its affinity mask, and the CPU quotas of the cgroups
// around it rounded up. At least 1.
int AvailableCpus();

// The processors that this process may run on, ascending. More than AvailableCpus where a quota
// limits their time; empty where the system does not say.
std::vector<int> AllowedCpus();

// Keeps the calling thread, and those it starts from now on, on some processors. False where the
// system refuses; then nothing has changed.
bool UseCpus(std::span<const int> cpus) noexcept;

// Keeps the calling thread, and those it starts from now on, on one processor. False where the
// system refuses; then the thread may move as before.
bool PinThisThread(int cpu) noexcept;

// Bytes of the largest cache that one processor sees; 0 where the system does not say.
uint64_t LastLevelCacheBytes();

// Bytes of a processor's first-level data cache; 0 where the system does not say.
uint64_t FirstLevelDataCacheBytes();

// Marketing name of the processor, or "unknown".
std::string CpuModelName();

}  // namespace hearth
