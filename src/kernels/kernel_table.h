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
#include "kernels/kv_ranges.h"
#include "tensor/dtype.h"
#include "tensor/kv_layout.h"
#include "tensor/op_kinds.h"
#include "tensor/tile_geometry.h"

namespace hearth::kernels {

// 32 activations quantized to int8 (symmetric, scale = max|x| / 127), the right-hand operand of
// quantized weights (MNN §5.1: W4A8, W8A8).
struct BlockQ8 {
  float scale;
  // -8 times the sum of the codes: what integer sums start from to take off the offset of Q4_0's
  // codes (they are stored 8 too large). Other offsets and minimums are multiples of it.
  int32_t minus_8_sum;
  int8_t codes[32];
  // The same of the first 16 codes alone, for weights with a scale for every 16 columns.
  int32_t minus_8_sum_of_first;
  // What minimums are multiplied with: the sum of the activations that the codes stand for, which
  // is scale * (minus_8_sum / -8).
  float sum;
};
static_assert(sizeof(BlockQ8) == 48);

// Blocks whose largest magnitude is below this count as zeros (127 / m must stay finite).
inline constexpr float kMinQ8Magnitude = 0x1p-100f;

// Float weights lie in rows and are multiplied with float activations, quantized ones in tiles
// (TileLayout::IsTiled) and with int8 activations.
//
// out[t * out_stride + r - row_begin] = sum_i W[r][i] * x[t][i] for rows [row_begin, row_end)
// and tokens [0, tokens).
struct MatMulArgs {
  const std::byte* weights;  // row 0 of the matrix
  size_t row_bytes;          // distance between rows
  int64_t k;                 // columns
  const float* x;
  int64_t x_stride;  // distance between tokens, in floats
  int64_t tokens;
  float* out;
  int64_t out_stride;  // distance between tokens, in floats
  int64_t row_begin;
  int64_t row_end;
};
using MatMulFn = void (*)(const MatMulArgs&) noexcept;

// The same for rows [16 * tile_begin, min(rows, 16 * tile_end)) of a matrix of tiles:
// out[t * out_stride + r - 16 * tile_begin]. Tokens lie in panels of geometry.panel_tokens, the
// last panel smaller: block b of token i of a panel of n tokens that begins with token t is x[t *
// blocks + b * n + i].
struct TileMatMulArgs {
  const std::byte* tiles;  // tile 0 of the matrix
  size_t tile_bytes;       // TileLayout::tile_bytes()
  int64_t blocks;          // of 32 columns; at least 1
  const BlockQ8* x;
  int64_t tokens;
  float* out;
  int64_t out_stride;  // distance between tokens, in floats
  int64_t rows;        // of the whole matrix
  int64_t tile_begin;
  int64_t tile_end;
  // One of TileGeometries (kernels/solver/tile_solver.h); but that panels may have any number of
  // tokens. Where tokens == 1, it has one token and does not unpack.
  TileGeometry geometry;
};
using TileMatMulFn = void (*)(const TileMatMulArgs&) noexcept;

// The weights of a tile as floats, column by column: out[(32 * b + i) * 16 + r] is row r's weight
// in column 32 * (first + b) + i, for b in [0, count). Of stored blocks `first` and `count` are of
// whole groups. The same bits on every ISA: scale * (code - offset), rounded, plus the minimum.
struct TileFloatsArgs {
  const std::byte* tile;
  int64_t first;  // block of 32 columns
  int64_t count;
  float* out;
};
using TileFloatsFn = void (*)(const TileFloatsArgs&) noexcept;

// out[t * 16 + r] += sum_i columns[i * 16 + r] * x[t * x_stride + i], for 16 rows.
struct ColumnsTimesTokensArgs {
  const float* columns;
  int64_t count;  // of columns, a multiple of 4
  const float* x;
  int64_t x_stride;  // distance between tokens, in floats
  int64_t tokens;
  float* out;
};
using ColumnsTimesTokensFn = void (*)(const ColumnsTimesTokensArgs&) noexcept;

// What an instruction set has for such products, and what its kernels are compiled for (x86/*.cc,
// arm/*.cc); the geometry is chosen by it (kernels/solver/tile_solver.h). All zeros: the kernels
// compute one result at a time, and there is nothing to choose.
struct TileUnit {
  int64_t registers;   // of vectors
  int64_t lanes;       // results in a vector
  int64_t columns;     // that one instruction adds up in a lane (l_p of MNN §5.1)
  int64_t tokens;      // whose results are in a vector: 1, or 2 where matrices are multiplied
  int64_t rows;        // of a tile, whose sums are in registers together
  int64_t most_sums;   // vectors of integer sums: tokens times tiles times rows / lanes
  int64_t most_tiles;  // for several tokens; one is multiplied with as many as kTileSteps has
  int64_t instructions_of_dot;  // that multiply a vector of 4-bit codes and add the products up
  bool multiplies_packed;       // whether geometries for several tokens need not unpack
};

// Whether kernels ask for the next row groups into the first-level cache, not the second-level one:
// where that has room for the rows in work and as many again. Then even matrices that are read
// afterwards come sooner, as measured (docs/decisions/0015-kernels-tried.md).
bool FetchesRowsNear();

// Whether the processor drops requests for lines while as many as it can have are on their way, as
// AMD's do: then the same line is asked for several times, and lines that follow each other, which
// its own prefetchers go on with, come soonest (docs/decisions/0015-kernels-tried.md).
bool DropsFetches();

// Whether row_dot loads rows into the first-level cache before it multiplies them: where requests
// are dropped and that cache has room. A load waits where a request would be lost, and hundreds of
// them, with nothing computed in between, wait side by side
// (docs/decisions/0015-kernels-tried.md).
bool LoadsRowsFirst();

// What attention reads next, and how it is fetched meanwhile.
struct NextRead {
  const std::byte* data = nullptr;  // as many bytes as are read now; null: nothing
  bool insists = DropsFetches();
  // Into the first-level cache, as for rows; others were only measured to gain nothing by it.
  bool near = insists && FetchesRowsNear();
};

// Attention over part of one KV head, whose keys and values lie as in a page (tensor/kv_layout.h),
// in the type that the kernel is for. Several queries (of the head's group, of several tokens) read
// them together.
//
// scores[i * score_stride + j] = q_i . keys[first + j], 0 <= j < count, in float32; the queries are
// already scaled. Blocks of keys are read as a whole.
struct AttentionScoresArgs {
  const float* q;
  int64_t q_stride;
  int64_t queries;
  const std::byte* keys;  // of the block that has key `first`
  int64_t first;          // < KvLayout::kKeyBlock
  int64_t count;
  int64_t head_dim;
  float* scores;
  int64_t score_stride;
  NextRead next;
};
using AttentionScoresFn = void (*)(const AttentionScoresArgs&) noexcept;

// The next `count` >= 1 scores of queries whose softmax runs along with their values. Of query i,
//   m = max(max[i], its scores), which is finite
//   its scores become exp(score - m)
//   sum[i] and out_i[0..head_dim), what came before, are multiplied by exp(max[i] - m)
//   sum[i] += its scores' results, and max[i] = m.
// It begins with a maximum of -inf and zeros.
struct AttentionWeightsArgs {
  float* scores;
  int64_t score_stride;
  int64_t queries;
  int64_t count;
  float* max;
  float* sum;
  float* out;
  int64_t out_stride;
  int64_t head_dim;
  // What lies there is read next: the first lines of its memory pages are asked for, so that
  // memory is not idle meanwhile and the processor's own prefetchers go on after them.
  NextRead next;
  int64_t next_bytes = 0;
};
// out_i[0..head_dim) += sum_j weights[i * weight_stride + j] * values[j], j ascending; `values` are
// `count` rows of head_dim. Of fp8 values the product of weight and scale is rounded first.
struct AttentionValuesArgs {
  const float* weights;
  int64_t weight_stride;
  int64_t queries;
  const std::byte* values;
  int64_t count;
  int64_t head_dim;
  float* out;
  int64_t out_stride;
  NextRead next;
  const std::byte* scales = nullptr;  // of fp8 values: a binary16 one per position
};
using AttentionValuesFn = void (*)(const AttentionValuesArgs&) noexcept;

// How keys and values of the KV cache are encoded (kernels/kv_ranges.h). The same bits on every
// ISA.
struct KvEncoders {
  // float to binary16, round to nearest even.
  void (*to_half)(const float* x, int64_t n, uint16_t* out) noexcept;
  // The range of a key's n >= 1 components for codes 0..most_code: RangeOfKey, or where there are
  // at most 16 codes NearestRangeOfKey.
  KeyRange (*key_range)(const float* x, int64_t n, int32_t most_code) noexcept;
  // The codes of some components of a key with this range, a byte each.
  void (*key_codes)(const float* x, int64_t n, const KeyRange& range, uint8_t* out) noexcept;
  // A value's n >= 1 components as fp8 numbers; returns their binary16 scale.
  uint16_t (*to_fp8)(const float* x, int64_t n, uint8_t* out) noexcept;
};

// 16 blocks of 32 activations as a row group meets them (tensor/row_groups.h): quad q of block b
// is codes[q][4 * b] and the three after it. Blocks after the last are zeros.
struct GroupQ8 {
  int8_t codes[8][64];
  float scales[16];  // as in BlockQ8
  int32_t sums[16];
};
static_assert(sizeof(GroupQ8) == 640);

// Rows of weights that lie stride bytes apart (the same part of every bundle), picked by index:
// row groups, or float weights one after the other. Rows may repeat and be in any order; the
// kernel fetches those ahead itself.
struct RowList {
  const std::byte* base;  // row 0
  size_t stride;
  const int32_t* rows;  // not negative
  int64_t count;
  bool near = FetchesRowsNear();  // row groups only
};

// out[i] = W[rows[i]] . x.
struct RowDotArgs {
  RowList list;
  int64_t k;         // a multiple of 32
  const GroupQ8* x;  // ceil(k / 512) of them
  float* out;
  // How rows come into the caches, with vectors of 512 bits; results are the same.
  bool loads_first = LoadsRowsFirst();
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

// The same rows for many tokens at once (prefill). Tokens lie as GroupQ8 one after the other:
// group g of token t is x[t * ceil(k / 512) + g].

// A tile (tensor/weight_tiles.h) of the rows of a list, at most 16; the rows that it lacks become
// zeros.
struct RowsToTileArgs {
  RowList list;
  int64_t k;        // a multiple of 32
  std::byte* tile;  // TileLayout::tile_bytes()
};
using RowsToTileFn = void (*)(const RowsToTileArgs&) noexcept;

// Some rows and the tokens that meet each of them, as a list of entries, token after token: an
// entry is a row (`places` has its number in the list) that its token meets. Ascending for a token.
inline constexpr int64_t kRowsOfBatch = 64;

// out[e] = W[list.rows[places[e]]] . x of entry e's token: the bits of RowDotFn.
struct RowsTimesTokensArgs {
  RowList list;  // at most kRowsOfBatch
  int64_t k;     // a multiple of 32
  const GroupQ8* x;
  int64_t tokens;
  const int32_t* begin;   // entries of token t: [begin[t], begin[t + 1]); begin[0] is 0
  const int32_t* places;  // of an entry
  float* lanes;           // scratch of kLanesOfEntry per entry
  float* out;             // of an entry
  RowList next;           // as long and of the same type: fetched meanwhile. May be empty
};
using RowsTimesTokensFn = void (*)(const RowsTimesTokensArgs&) noexcept;
inline constexpr int64_t kLanesOfEntry = 16;

// Twice as many: what a token's sums cost to fetch and to put back is shared by twice the entries.
inline constexpr int64_t kRowsOfSums = 128;

// Weights of a block in a quarter of a token's sums, and their sums in all 16 blocks.
inline constexpr int64_t kQuarterWeights = 8;
inline constexpr int64_t kQuarterSums = 128;

// sums[t] += sum over entries e of token t of a[e] * W[list.rows[places[e]]], on the 512 columns of
// one group. Entries of a token are added in their order; so the bits are those of RowScaledAddFn
// with the same rows. A token's sums are in four quarters, of 8 weights of every block each, so
// that what is added to together lies together: sums[i / 8][t][i % 8][b] belongs to weight i of
// block b.
struct RowsToSumsArgs {
  RowList list;   // at most kRowsOfSums
  int64_t k;      // a multiple of 32
  int64_t group;  // below ceil(k / 512)
  int64_t tokens;
  const int32_t* begin;   // entries of token t: [begin[t], begin[t + 1])
  const int32_t* places;  // of an entry: a number in the list
  const float* a;         // of an entry
  float* sums;            // [4][tokens][8][16]
  RowList next;           // rows of the next call, which are fetched meanwhile. May be empty
};
using RowsToSumsFn = void (*)(const RowsToSumsArgs&) noexcept;

// Rows of float weights meet float activations. Their tiles are the rows themselves, for MatMulFn,
// whose bits all dot products have.
//
// out[i] = W[rows[i]] . x.
struct FloatRowDotArgs {
  RowList list;
  int64_t k;  // a multiple of 32
  const float* x;
  float* out;
};
using FloatRowDotFn = void (*)(const FloatRowDotArgs&) noexcept;

// out[i] = W . x[tokens[i]] for one row W.
struct FloatRowTimesTokensArgs {
  const std::byte* row;
  int64_t k;  // a multiple of 32
  const float* x;
  int64_t x_stride;  // distance between tokens, in floats
  const int32_t* tokens;
  int64_t count;
  float* out;
};
using FloatRowTimesTokensFn = void (*)(const FloatRowTimesTokensArgs&) noexcept;

// out[t][c] += sum over entries e of token t of a[e] * W[list.rows[places[e]]][c], entry after
// entry: the bits of RowScaledAddFn with the same rows. The list's base and out may point to any
// column: that is column 0 here.
struct FloatRowsToTokensArgs {
  RowList list;     // at most kRowsOfBatch
  int64_t columns;  // a multiple of 32
  int64_t tokens;
  const int32_t* begin;  // entries of token t: [begin[t], end[t])
  const int32_t* end;
  const int32_t* places;  // of an entry: a number in the list
  const float* a;         // of an entry
  float* out;
  int64_t out_stride;  // distance between tokens, in floats
};
using FloatRowsToTokensFn = void (*)(const FloatRowsToTokensArgs&) noexcept;

// Which of some neurons fire: those whose gates are not silent, that is not at most `below` and not
// between `from` and `to` (ops/silent_gates.h). A gate that is no number fires; bounds that are no
// numbers make no gate silent.
struct PackFiredArgs {
  const int32_t* neurons;
  const float* gates;
  int64_t count;
  float below;
  float from;
  float to;
  const uint64_t* allowed;  // others do not fire: neuron i is bit i % 64 of word i / 64. Null: all
  uint64_t* fired;          // likewise those that do, ceil(count / 64) words. May be null
  // Those that fire, in order: as many as the result says, with room for `count`, of which what
  // lies after those is overwritten. May be the inputs themselves.
  int32_t* out_neurons;
  float* out_gates;
};
using PackFiredFn = int64_t (*)(const PackFiredArgs&) noexcept;

// out[i] = XXH32, with seed 0, of the first `bytes` bytes of rows[i]: the checks of bundles
// (docs/formats/bundle.md).
struct RowHashArgs {
  RowList list;
  size_t bytes;
  uint32_t* out;
};
using RowHashFn = void (*)(const RowHashArgs&) noexcept;

using hearth::FfnActivation;
using hearth::kNumFfnActivations;
using hearth::RopeLayout;

struct KernelTable {
  const char* isa;  // "scalar", "avx2", "avx512", "neon", ...

  // By DType; null where the type has no kernel: F32, F16, BF16 have one in `matmul`, those of
  // kTileFormats (tensor/weight_tiles.h) in `matmul_tiles`; other types are converted at load.
  MatMulFn matmul[kNumDTypes];
  TileMatMulFn matmul_tiles[kNumDTypes];
  TileUnit tile_unit;                    // what the geometry of matmul_tiles is chosen by
  TileFloatsFn tile_floats[kNumDTypes];  // of the types of matmul_tiles
  ColumnsTimesTokensFn columns_times_tokens;

  // x[0..n) to n/32 blocks, `stride` blocks apart. n is a multiple of 32. With m = max|x| of a
  // block, in float32: scale = m / 127, inverse = 127 / m, codes = round(x * inverse) to
  // nearest-even: the same bits on every ISA. m < kMinQ8Magnitude gives scale 0 and codes 0; a NaN
  // or infinity in the block gives scale NaN and codes 0, so that it shows in every result it takes
  // part in. (Sums of codes are exact, so `sum` is rounded once.)
  void (*quantize_q8)(const float* x, int64_t n, BlockQ8* out, int64_t stride) noexcept;

  // The same blocks, bit for bit, as groups: x[0..n) to ceil(n / 512) of them.
  void (*quantize_q8_groups)(const float* x, int64_t n, GroupQ8* out) noexcept;

  // By DType; null but for the types that HasRowGroups names (Q4_0, Q4_1, Q8_0), and for F16 in
  // row_scaled_add.
  RowDotFn row_dot[kNumDTypes];
  RowScaledAddFn row_scaled_add[kNumDTypes];
  RowsToTileFn rows_to_tile[kNumDTypes];
  RowsTimesTokensFn rows_times_tokens[kNumDTypes];
  RowsToSumsFn rows_to_sums[kNumDTypes];

  // By DType; null but for F16.
  FloatRowDotFn float_row_dot[kNumDTypes];
  FloatRowTimesTokensFn float_row_times_tokens[kNumDTypes];
  FloatRowsToTokensFn float_rows_to_tokens[kNumDTypes];

  // The sums of token `token` of `tokens` on a group of `blocks` blocks as RowsToSumsArgs has them,
  // in the order of columns: out[32 * blocks].
  void (*sums_to_columns)(const float* sums, int64_t tokens, int64_t token, int64_t blocks,
                          float* out) noexcept;

  PackFiredFn pack_fired;

  RowHashFn xxh32_rows;

  // out = x / sqrt(mean(x^2) + eps) * weight. out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out) noexcept;

  // Row i of cos and sin belongs to pair i; pairs = rotated dims / 2. In place.
  // out1 = a*cos - b*sin, out2 = a*sin + b*cos.
  void (*rope)(float* x, const float* cos, const float* sin, int64_t pairs,
               RopeLayout layout) noexcept;

  // In place: x[i] = exp(x[i] - max) / sum. n >= 1. Entries of -inf become 0; a finite one exists.
  void (*softmax)(float* x, int64_t n) noexcept;

  // out[i] = act(gate[i], up[i]): silu(g)*u | relu(g)*u | (g > t ? g : 0)*u | relu(g)*relu(u) |
  // (|silu(g)| > t ? silu(g) : 0)*u | gelu(g)*u | m*sigmoid(1.702 m)*(c + 1) with m = min(g, t) and
  // c = min(max(u, -t), t), by FfnActivation; gelu(g) is
  // g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))), or for kGeluErf g/2 (1 + erf(g/sqrt(2))), within
  // 3e-7 |g u|. threshold is used by kFatRelu,
  // kThresholdedSilu and kClampedSwiglu only. out may be gate or up. A result of an inactive neuron
  // is exactly +0 or -0.
  void (*ffn_activation[kNumFfnActivations])(const float* gate, const float* up, int64_t n,
                                             float threshold, float* out) noexcept;

  void (*add)(const float* a, int64_t n, float* out) noexcept;                  // out += a
  void (*scaled_add)(const float* a, float s, int64_t n, float* out) noexcept;  // out += s * a

  KvEncoders kv_encoders;

  AttentionScoresFn attn_scores[kNumKvKeys];  // by KvKeys
  void (*attn_weights)(const AttentionWeightsArgs&) noexcept;
  AttentionValuesFn attn_values[kNumKvValues];  // by KvValues

  // To measure the machine, not to compute (ops/probe.h). Multiplies and adds bytes, in registers
  // alone, with the instructions of the matmul kernels; returns how many multiply-adds it did,
  // proportional to `rounds`.
  int64_t (*probe_int8)(int64_t rounds) noexcept;
  // The same with fused multiplies and adds of float32; returns how many multiplies and adds it
  // did, two per fused operation.
  int64_t (*probe_float)(int64_t rounds) noexcept;
  // Reads `bytes` (a multiple of 64) as fast as it can; returns the exclusive or of all 64-bit
  // words, so that nothing can be left out.
  uint64_t (*probe_read)(const std::byte* p, int64_t bytes) noexcept;
};

}  // namespace hearth::kernels
