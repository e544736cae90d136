// The kernel table of an instruction set, from the bodies that all of them share.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/attention-inl.h"
#include "kernels/simd/elementwise-inl.h"
#include "kernels/simd/fired-inl.h"
#include "kernels/simd/float_rows-inl.h"
#include "kernels/simd/kv_encode-inl.h"
#include "kernels/simd/matmul_float-inl.h"
#include "kernels/simd/matmul_tiles-inl.h"
#include "kernels/simd/narrow-inl.h"
#include "kernels/simd/probe-inl.h"
#include "kernels/simd/row_batches-inl.h"
#include "kernels/simd/rows-inl.h"
#include "kernels/simd/tile_floats-inl.h"
#include "kernels/simd/xxh32-inl.h"

namespace hearth::kernels::HEARTH_ISA {

template <template <int> class Chunk, class... Types>
constexpr void SetTiles(KernelTable& t) {
  ((t.matmul_tiles[static_cast<int>(Types::kDType)] = MatMulTiles<Types, Chunk>), ...);
  ((t.tile_floats[static_cast<int>(Types::kDType)] = TileFloats<Types>), ...);
}

// The types of kTileFormats from number `index` on that are stored as blocks.
template <template <int> class Chunk, size_t index = 0>
constexpr void SetStoredTiles(KernelTable& t) {
  if constexpr (index < sizeof(kTileFormats) / sizeof(kTileFormats[0])) {
    constexpr DType kDType = kTileFormats[index].dtype;
    if constexpr (kTileFormats[index].scales == TileScales::kStored) {
      SetTiles<Chunk, StoredTiles<kDType>>(t);
    }
    SetStoredTiles<Chunk, index + 1>(t);
  }
}

inline constexpr TileUnit kTileUnit = {.registers = kVectorRegisters,
                                       .lanes = kLanes,
                                       .columns = 4,  // a quad
                                       .tokens = 1,
                                       .rows = kLineLanes,
                                       .most_sums = kMostSums,
                                       .most_tiles = kMostTilesOfChunk,
                                       .instructions_of_dot = kDotInstructions,
                                       .multiplies_packed = kMultipliesPacked};

// Chunk is how tiles are multiplied with several tokens (matmul_tiles-inl.h).
template <template <int> class Chunk = UnpackedTiles>
constexpr KernelTable MakeTable(const char* isa) {
  KernelTable t{};
  t.isa = isa;
  t.matmul[static_cast<int>(DType::kF32)] = MatMul<FloatFamily<F32Weights>>;
  t.matmul[static_cast<int>(DType::kF16)] = MatMul<FloatFamily<F16Weights>>;
  t.matmul[static_cast<int>(DType::kBF16)] = MatMul<FloatFamily<BF16Weights>>;
  SetTiles<Chunk, Q8_0Tiles, Q4_0Tiles, Q4_1Tiles, Q5_0Tiles, Q5_1Tiles>(t);
  SetTiles<Chunk, IQ4_NLTiles, IQ4_XSTiles, MXFP4Tiles, NVFP4Tiles>(t);
  SetTiles<Chunk, Q2_KTiles, Q3_KTiles, Q4_KTiles, Q5_KTiles, Q6_KTiles>(t);
  SetStoredTiles<Chunk>(t);
  t.tile_unit = kTileUnit;
  t.columns_times_tokens = ColumnsTimesTokens;
  t.quantize_q8 = QuantizeQ8;
  t.quantize_q8_groups = QuantizeQ8Groups;
  t.row_dot[static_cast<int>(DType::kQ8_0)] = RowDot<Q8_0Rows>;
  t.row_dot[static_cast<int>(DType::kQ4_0)] = RowDot<Q4_0Rows>;
  t.row_dot[static_cast<int>(DType::kQ4_1)] = RowDot<Q4_1Rows>;
  t.row_scaled_add[static_cast<int>(DType::kQ8_0)] = RowScaledAdd<Q8_0Rows>;
  t.row_scaled_add[static_cast<int>(DType::kQ4_0)] = RowScaledAdd<Q4_0Rows>;
  t.row_scaled_add[static_cast<int>(DType::kQ4_1)] = RowScaledAdd<Q4_1Rows>;
  SetRowBatches<Q8_0Rows>(t);
  SetRowBatches<Q4_0Rows>(t);
  SetRowBatches<Q4_1Rows>(t);
  SetFloatRows<F16Weights>(t, DType::kF16);
  t.sums_to_columns = SumsToColumns;
  t.pack_fired = PackFired;
  t.xxh32_rows = Xxh32Rows;
  t.rms_norm = RmsNorm;
  t.rope = Rope;
  t.softmax = Softmax;
  t.ffn_activation[static_cast<int>(FfnActivation::kSilu)] = ActivateFfn<FfnActivation::kSilu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kRelu)] = ActivateFfn<FfnActivation::kRelu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kFatRelu)] =
      ActivateFfn<FfnActivation::kFatRelu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kDRelu)] = ActivateFfn<FfnActivation::kDRelu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kThresholdedSilu)] =
      ActivateFfn<FfnActivation::kThresholdedSilu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kGelu)] = ActivateFfn<FfnActivation::kGelu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kGeluErf)] =
      ActivateFfn<FfnActivation::kGeluErf>;
  t.ffn_activation[static_cast<int>(FfnActivation::kClampedSwiglu)] =
      ActivateFfn<FfnActivation::kClampedSwiglu>;
  t.add = Add;
  t.scaled_add = ScaledAdd;
  t.kv_encoders = {FloatToHalf, KeyRangeOf, KeyCodes, ToFp8};
  t.attn_scores[static_cast<int>(KvKeys::kF32)] = AttentionScores<FloatKeys<F32Weights>>;
  t.attn_scores[static_cast<int>(KvKeys::kF16)] = AttentionScores<FloatKeys<F16Weights>>;
  t.attn_scores[static_cast<int>(KvKeys::kInt8)] = AttentionScores<Int8Keys>;
  t.attn_scores[static_cast<int>(KvKeys::kInt4)] = AttentionScores<Int4Keys>;
  t.attn_weights = AttentionWeights;
  t.attn_values[static_cast<int>(KvValues::kF32)] = AttentionValues<FloatValues<F32Weights>>;
  t.attn_values[static_cast<int>(KvValues::kF16)] = AttentionValues<FloatValues<F16Weights>>;
  t.attn_values[static_cast<int>(KvValues::kFp8)] = AttentionValues<Fp8Values>;
  t.probe_int8 = ProbeInt8<NibbleSums, 4 * kLanes>;
  t.probe_float = ProbeFloat;
  t.probe_read = ProbeRead;
  return t;
}

}  // namespace hearth::kernels::HEARTH_ISA
