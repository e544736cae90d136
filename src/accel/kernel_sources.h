// The files of opencl/kernels, which are part of the program.
#pragma once

#include <string_view>

namespace hearth::accel {

// The text of a file ("neurons" of neurons.cl). Throws Error(kInternal) where there is none.
std::string_view KernelSource(std::string_view file);

}  // namespace hearth::accel
