// The tables that may be linked in, one per instruction set. Which of them exist depends on the
// processor that the build is for (CMakeLists.txt); only dispatch.cc names them.
#pragma once

#include "kernels/kernel_table.h"

namespace hearth::kernels {

extern const KernelTable kScalarKernels;

extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvxVnniKernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512VnniKernels;

extern const KernelTable kNeonKernels;
extern const KernelTable kDotProdKernels;
extern const KernelTable kI8mmKernels;

}  // namespace hearth::kernels
