// What this machine says of itself, without anything being measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/doctor/hardware.h"

namespace hearth {

// Sets what needs no measuring: processor, kernels, processors, memory, limits,
// load, accelerators.
void DescribeMachine(HardwareProfile& profile);

// Bytes that this process may lock in memory; nothing where there is no limit (or it may pass it).
std::optional<uint64_t> LockableMemoryBytes();

// Names of graphics processors and the like that the system shows under `root`/dev: "NVIDIA H100",
// "renderD128 (amdgpu)".
std::vector<std::string> ListAccelerators(const std::filesystem::path& root = "/");

// The kernel's name and release.
std::string SystemName();

}  // namespace hearth
