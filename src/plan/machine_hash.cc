#include "plan/machine_hash.h"

#include <fmt/format.h>

#include <span>

#include "base/checksum.h"

namespace hearth {

std::string MachineHash(const std::string& cpu_model, const std::string& isa, int cpus,
                        uint64_t memory_bytes) {
  const uint64_t whole_gib = (memory_bytes + (uint64_t{1} << 29)) >> 30;
  const std::string text = fmt::format("{}\n{}\n{}\n{}", cpu_model, isa, cpus, whole_gib);
  return fmt::format("{:016x}", Checksum(std::as_bytes(std::span(text))));
}

}  // namespace hearth
