// Armv8.0 NEON, what every 64-bit Arm has: bytes are multiplied to 16 bits, then added in pairs.
#define HEARTH_ISA neon
#include <arm_neon.h>

#include "kernels/tables.h"
#include "kernels/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

HWY_INLINE int32x4_t DotBytes(int32x4_t sums, int8x16_t a, int8x16_t b) {
  // Two products fit 16 bits: activations are never -128 (kernel_table.h), so at most 2*128*127.
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
  return vpadalq_s16(sums, vmlal_high_s8(low, a, b));
}

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/arm/int8_primitives-inl.h"
#include "kernels/arm/partial_neon-inl.h"
// The bodies use what is defined above.
#include "kernels/table-inl.h"

namespace hearth::kernels {
constinit const KernelTable kNeonKernels = HEARTH_ISA::MakeTable("neon");
}  // namespace hearth::kernels
