// Several tokens times weight tiles with the dot product instructions of Armv8.2, which take one
// operand's quad from a lane: what matmul_tiles-inl.h does, but without broadcasts.
#pragma once

#include <arm_neon.h>

#include "kernels/simd/matmul_tiles-inl.h"

namespace hearth::kernels::HEARTH_ISA {

struct LaneProducts {
  template <class Codes, int kFirst, int T, int V>
  static HWY_INLINE void Add(const uint8_t* quads, const BlockQ8* x, IntVec (&products)[T][V]) {
    constexpr int kQuadsOfVector = 4;
    for (int q = kFirst; q < kFirst + kQuadsOfPart<Codes>; q += kQuadsOfVector) {
      int8x16_t columns[T];
      for (int t = 0; t < T; ++t) columns[t] = vld1q_s8(x[t].codes + 4 * q);
      const uint8_t* from = quads + (q - kFirst) * V * kVectorBytes;
      AddQuad<0>(from, columns, products);
      AddQuad<1>(from + V * kVectorBytes, columns, products);
      AddQuad<2>(from + 2 * V * kVectorBytes, columns, products);
      AddQuad<3>(from + 3 * V * kVectorBytes, columns, products);
    }
  }

 private:
  template <int Lane, int T, int V>
  static HWY_INLINE void AddQuad(const uint8_t* quad, const int8x16_t (&columns)[T],
                                 IntVec (&products)[T][V]) {
    int8x16_t weights[V];
    for (int v = 0; v < V; ++v) {
      weights[v] = vreinterpretq_s8_u8(vld1q_u8(quad + v * kVectorBytes));
    }
    for (int t = 0; t < T; ++t) {
      for (int v = 0; v < V; ++v) {
        products[t][v].raw = vdotq_laneq_s32(products[t][v].raw, weights[v], columns[t], Lane);
      }
    }
  }
};

template <int G>
struct LaneTiles : UnpackedTiles<G> {
  template <class Codes>
  HWY_INLINE void MultiplyPanel(const ChunkPanel& panel, float* sums) const {
    AddChunkToPanel<Codes, LaneProducts, G>(*this, panel, sums);
  }
};

}  // namespace hearth::kernels::HEARTH_ISA
