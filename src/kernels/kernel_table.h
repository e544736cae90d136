// The kernels of one instruction set, as a table of function pointers chosen once at start.
//
// Kernels are single-threaded, allocation-free and noexcept; they trust their arguments (ops/
// checks shapes). Every result is a fixed function of its operands: it does not depend on how
// rows or tokens were split between calls, so that logits are bit-identical for every thread
// count and every chunking of a prompt (docs/architecture.md, invariant 3). Concretely, the value
// of out[t][r] may depend only on row r, on x[t] and on k.
//
// Buffers need no alignment. Reads stay inside the operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/cpu.h"
#include "tensor/dtype.h"
#include "tensor/op_kinds.h"

namespace hearth::kernels {

// 32 activations quantized to int8 (symmetric, scale = max|x| / 127), the right-hand operand of
// quantized weights (M section 5.1: W4A8, W8A8).
struct BlockQ8 {
  float scale;
  int32_t sum;  // of the codes; corrects for offsets and minimums of 4-bit weights
  int8_t codes[32];
};
static_assert(sizeof(BlockQ8) == 40);

// Blocks whose largest magnitude is below this count as zeros (127 / m must stay finite).
inline constexpr float kMinQ8Magnitude = 0x1p-100f;

// What a weight type multiplies with.
enum class ActivationKind { kFloat, kQ8 };

// out[t * out_stride + r - row_begin] = sum_i W[r][i] * x[t][i] for rows [row_begin, row_end)
// and tokens [0, tokens).
struct MatMulArgs {
  const std::byte* weights;  // row 0 of the matrix
  size_t row_bytes;          // distance between rows
  int64_t k;                 // columns; a multiple of the type's block size
  const void* x;             // const float* or const BlockQ8*, by ActivationKindOf(dtype)
  int64_t x_stride;          // distance between tokens in elements (floats or BlockQ8s)
  int64_t tokens;
  float* out;
  int64_t out_stride;  // distance between tokens, in floats
  int64_t row_begin;
  int64_t row_end;
};
using MatMulFn = void (*)(const MatMulArgs&) noexcept;

// 16 blocks of 32 activations as a row group meets them (tensor/row_groups.h): quad q of block b
// is codes[q][4 * b] and the three after it. Blocks after the last are zeros.
struct GroupQ8 {
  int8_t codes[8][64];
  float scales[16];  // as in BlockQ8
  int32_t sums[16];
};
static_assert(sizeof(GroupQ8) == 640);

// Rows of weights in row groups that lie stride bytes apart (the same part of every bundle),
// picked by index. Rows may repeat and be in any order; the kernel fetches those ahead itself.
struct RowList {
  const std::byte* base;  // row 0
  size_t stride;
  const int32_t* rows;  // not negative
  int64_t count;
};

// out[i] = W[rows[i]] . x.
struct RowDotArgs {
  RowList list;
  int64_t k;         // a multiple of 32
  const GroupQ8* x;  // ceil(k / 512) of them
  float* out;
};
using RowDotFn = void (*)(const RowDotArgs&) noexcept;

// out[c] += sum_i a[i] * W[rows[i]][c] for columns c of groups [group_begin, group_end): 512 each
// but for the last. Every sum starts from out[c] and goes on in the order of the list, in float32,
// so that neither a list nor the columns that are split between calls change a bit.
struct RowScaledAddArgs {
  RowList list;
  const float* a;  // one per row of the list
  int64_t k;       // a multiple of 32
  int64_t group_begin;
  int64_t group_end;  // at most ceil(k / 512)
  float* out;         // column 0, whatever group_begin
};
using RowScaledAddFn = void (*)(const RowScaledAddArgs&) noexcept;

using hearth::FfnActivation;
using hearth::kNumFfnActivations;
using hearth::RopeLayout;

struct KernelTable {
  const char* isa;  // "scalar", "avx2", "avx512", "neon", ...

  // By DType; null where the type has no kernel (it is converted at load). Present: F32, F16,
  // BF16 (float activations), Q8_0, Q4_0, Q4_1 (Q8 activations).
  MatMulFn matmul[kNumDTypes];

  // x[0..n) to n/32 blocks. n is a multiple of 32. With m = max|x| of a block, in float32:
  // scale = m / 127, inverse = 127 / m, codes = round(x * inverse) to nearest-even: the same bits
  // on every ISA. m < kMinQ8Magnitude gives scale 0 and codes 0; a NaN or infinity in the block
  // gives scale NaN and codes 0, so that it shows in every result it takes part in.
  void (*quantize_q8)(const float* x, int64_t n, BlockQ8* out) noexcept;

  // The same blocks, bit for bit, as groups: x[0..n) to ceil(n / 512) of them.
  void (*quantize_q8_groups)(const float* x, int64_t n, GroupQ8* out) noexcept;

  // By DType; null but for the types that HasRowGroups names (Q4_0, Q4_1, Q8_0).
  RowDotFn row_dot[kNumDTypes];
  RowScaledAddFn row_scaled_add[kNumDTypes];

  // out = x / sqrt(mean(x^2) + eps) * weight. out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out) noexcept;

  // Row i of cos and sin belongs to pair i; pairs = rotated dims / 2. In place.
  // out1 = a*cos - b*sin, out2 = a*sin + b*cos.
  void (*rope)(float* x, const float* cos, const float* sin, int64_t pairs,
               RopeLayout layout) noexcept;

  // In place: x[i] = exp(x[i] - max) / sum. n >= 1. Entries of -inf become 0; a finite one exists.
  void (*softmax)(float* x, int64_t n) noexcept;

  // out[i] = act(gate[i], up[i]): silu(g)*u | relu(g)*u | (g > t ? g : 0)*u | relu(g)*relu(u),
  // by FfnActivation. threshold is used by kFatRelu only. out may be gate or up. A result of an
  // inactive neuron is exactly +0 or -0.
  void (*ffn_activation[kNumFfnActivations])(const float* gate, const float* up, int64_t n,
                                             float threshold, float* out) noexcept;

  void (*add)(const float* a, int64_t n, float* out) noexcept;                  // out += a
  void (*scaled_add)(const float* a, float s, int64_t n, float* out) noexcept;  // out += s * a

  // float to binary16, round to nearest even, as the KV cache stores it.
  void (*float_to_half)(const float* x, int64_t n, uint16_t* out) noexcept;

  // Attention over part of one KV head: keys and values are `count` rows of head_dim, contiguous.
  // scores[j] = q . keys[j], in float32 (the query is already scaled).
  void (*attn_scores_f32)(const float* q, const float* keys, int64_t count, int64_t head_dim,
                          float* scores) noexcept;
  void (*attn_scores_f16)(const float* q, const uint16_t* keys, int64_t count, int64_t head_dim,
                          float* scores) noexcept;
  // out[0..head_dim) += sum_j weights[j] * values[j], j ascending.
  void (*attn_values_f32)(const float* weights, const float* values, int64_t count,
                          int64_t head_dim, float* out) noexcept;
  void (*attn_values_f16)(const float* weights, const uint16_t* values, int64_t count,
                          int64_t head_dim, float* out) noexcept;
};

// kQ8 for Q8_0, Q4_0, Q4_1; kFloat for F32, F16, BF16.
ActivationKind ActivationKindOf(DType dtype);

// True where every table has a matmul for the type.
bool HasKernel(DType dtype);

// The best table that `features` allows; never null (the scalar one runs everywhere).
const KernelTable& BestKernels(const CpuFeatures& features);

// The table with this name if it is built in and `features` allows it, else null. For --isa.
const KernelTable* FindKernels(std::string_view isa, const CpuFeatures& features);

// All tables that `features` allows, the scalar oracle first. Never empty.
std::span<const KernelTable* const> UsableKernels(const CpuFeatures& features);

}  // namespace hearth::kernels
