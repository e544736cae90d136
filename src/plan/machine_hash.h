// What tells the machines of plans apart.
#pragma once

#include <cstdint>
#include <string>

namespace hearth {

// Of the processor's name, the kernels' instruction set, the processors that the process may use,
// and the machine's memory in whole GiB (kernels keep a little more or less of it). 16 hexadecimal
// digits.
std::string MachineHash(const std::string& cpu_model, const std::string& isa, int cpus,
                        uint64_t memory_bytes);

}  // namespace hearth
