// NEON with the dot product instructions of Armv8.2.
#define HEARTH_ISA dotprod
#include <arm_neon.h>

#include "kernels/tables.h"
#include "kernels/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

HWY_INLINE int32x4_t DotBytes(int32x4_t sums, int8x16_t a, int8x16_t b) {
  return vdotq_s32(sums, a, b);
}

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/arm/int8_primitives-inl.h"
#include "kernels/arm/partial_neon-inl.h"
// The bodies use what is defined above.
#include "kernels/table-inl.h"

namespace hearth::kernels {
constinit const KernelTable kDotProdKernels = HEARTH_ISA::MakeTable("dotprod");
}  // namespace hearth::kernels
