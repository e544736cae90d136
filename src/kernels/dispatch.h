// Which of the kernel tables that are linked in a processor runs: one per instruction set.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/cpu.h"
#include "kernels/kernel_table.h"
#include "tensor/dtype.h"

namespace hearth::kernels {

// True where every table has a matmul for the type.
bool HasKernel(DType dtype);

// The tiles that one token is multiplied with at once (TileGeometry::tiles) where that has not been
// measured on this machine. As found on others (docs/decisions/0005-tiles-of-rows.md): 1 on AMD's
// processors, which fetch one stream ahead of its use best, 4 elsewhere, where so many streams keep
// memory busy.
int64_t BestSideBySide();

// The best table that `features` allows; never null (the scalar one runs everywhere).
const KernelTable& BestKernels(const CpuFeatures& features);

// The table with this name if it is built in and `features` allows it, else null. For --isa.
const KernelTable* FindKernels(std::string_view isa, const CpuFeatures& features);

// All tables that `features` allows, the scalar oracle first. Never empty.
std::span<const KernelTable* const> UsableKernels(const CpuFeatures& features);

}  // namespace hearth::kernels
