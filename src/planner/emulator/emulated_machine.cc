#include "planner/emulator/emulated_machine.h"

#include <fmt/format.h>

#include "base/error.h"

namespace hearth {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
// Multiply-adds of floats in a cycle of a core with two AVX2 units: eight each.
constexpr double kAvx2MacsPerCycle = 16;
// Multiply-adds of floats in a cycle of a Cortex-A720 with NEON: two units of four. An X4 has twice
// as many and is given no more.
constexpr double kNeonMacsPerCycle = 8;
// No maker prints these. Launches of small kernels and short transfers are measured at some
// microseconds on PCs; all three machines are given the same.
constexpr double kLaunchSeconds = 5e-6;
constexpr double kLinkSeconds = 10e-6;

// PCI Express: 128 of 130 bits are data; 16 lanes.
constexpr double PcieBytesPerSecond(double transfers_per_s) {
  return transfers_per_s * 16 / 8 * 128 / 130;
}

// Samsung 990 PRO 2TB (data sheet, revision 1.0): 7,450 MB/s in sequence, 1.4 million reads of
// 4 KiB per second. P1 names no disk: this one stands for a fast one of its PCs' time. The curve
// between is free.
DeviceProfile NvmeDisk() {
  DeviceProfile flash;
  flash.name = "990 PRO 2TB";
  flash.random = {{4096, 1.4e6 * 4096}, {32768, 7.45e9}};
  flash.sequential = {{4096, 7.45e9}};
  flash.max_reads_per_second = 1.4e6;
  flash.latency_seconds = 50e-6;  // free
  return flash;
}

// P1 §8.1, PC-High. Device: NVIDIA Ada GPU architecture white paper, Appendix A: 24 GB, 1,008 GB/s,
// 82.6 TFLOPS of FP32 without tensor cores (two operations for a multiply-add). Link: PCI Express
// 4.0, 16 lanes of 16 GT/s; the 64 GB/s that P1 prints are both directions together. Host: P1:
// eight cores of 5.4 GHz, 67.2 GB/s, 192 GB.
EmulatedMachine Rtx4090() {
  return {.name = "",
          .device_bytes = 24 * kGiB,
          .device_bytes_per_s = 1008e9,
          .device_macs_per_s = 82.6e12 / 2,
          .launch_seconds = kLaunchSeconds,
          .link_bytes_per_s = PcieBytesPerSecond(16e9),
          .link_seconds = kLinkSeconds,
          .host_bytes = 192 * kGiB,
          .host_bytes_per_s = 67.2e9,
          .host_macs_per_s = 8 * 5.4e9 * kAvx2MacsPerCycle,
          .flash = NvmeDisk()};
}

// P1 §8.1, PC-Low. Device: NVIDIA Turing GPU architecture white paper, Table 1 and Appendix A: 11
// GB, 616 GB/s, 13.4 TFLOPS of FP32 (reference card). Link: PCI Express 3.0, 16 lanes of 8 GT/s.
// Host: P1: eight cores of 4.9 GHz, 38.4 GB/s, 64 GB.
EmulatedMachine Rtx2080Ti() {
  return {.name = "",
          .device_bytes = 11 * kGiB,
          .device_bytes_per_s = 616e9,
          .device_macs_per_s = 13.4e12 / 2,
          .launch_seconds = kLaunchSeconds,
          .link_bytes_per_s = PcieBytesPerSecond(8e9),
          .link_seconds = kLinkSeconds,
          .host_bytes = 64 * kGiB,
          .host_bytes_per_s = 38.4e9,
          .host_macs_per_s = 8 * 4.9e9 * kAvx2MacsPerCycle,
          .flash = NvmeDisk()};
}

// The phone of P2 (OnePlus 12, Snapdragon 8 Gen 3). Memory: Snapdragon 8 Gen 3 product brief:
// LPDDR5X of 4,800 MHz, 64 bits wide: 76.8 GB/s, which GPU and cores share. Each is given all of it
// here, so a plan for both at once is a best case. Qualcomm prints no rate of the GPU: 2.8 TFLOPS
// of FP32 are what reviewers derive from 1,536 units at 903 MHz. There is no link: a transfer is a
// copy in that memory. Cores: P2 Table 1: 3.3, 3.0 and 2.2 GHz; one, five and two of them. Memory
// of one program: P2 Table 3. Flash: P2 §2.3 (Ufs40).
EmulatedMachine Adreno750() {
  constexpr double kCycles = 3.3e9 + 5 * 3.0e9 + 2 * 2.2e9;
  return {.name = "",
          .device_bytes = 8 * kGiB,  // free: what an app may take for the GPU
          .device_bytes_per_s = 76.8e9,
          .device_macs_per_s = 2.8e12 / 2,
          .launch_seconds = kLaunchSeconds,
          .link_bytes_per_s = 76.8e9 / 2,
          .link_seconds = kLinkSeconds,
          .host_bytes = 11 * kGiB,
          .host_bytes_per_s = 76.8e9,
          .host_macs_per_s = kCycles * kNeonMacsPerCycle,
          .flash = Ufs40()};
}

struct NamedMachine {
  const char* name;
  EmulatedMachine (*make)();
};
constexpr NamedMachine kMachines[] = {
    {"rtx-4090", Rtx4090}, {"rtx-2080ti", Rtx2080Ti}, {"adreno-750", Adreno750}};

}  // namespace

std::vector<std::string> EmulatedMachineNames() {
  std::vector<std::string> names;
  for (const NamedMachine& machine : kMachines) names.emplace_back(machine.name);
  return names;
}

EmulatedMachine FindEmulatedMachine(std::string_view name) {
  for (const NamedMachine& machine : kMachines) {
    if (name != machine.name) continue;
    EmulatedMachine found = machine.make();
    found.name = machine.name;
    return found;
  }
  throw Error(ErrorCode::kNotFound, Field{"machine"},
              fmt::format("{} is no emulated machine: there are {}", name,
                          fmt::join(EmulatedMachineNames(), ", ")));
}

}  // namespace hearth
