// Weight matrices as they lie in GGUF files (tensor/blocks.h), times tokens of floats. One program
// per type of weights; RunAt is all that differs: weights i .. i + 7 of a row, where 8 divides i.
// Rows of floats may end inside a run; WeightAt is one weight of theirs. A matrix begins at byte
// `begin` of its buffer.

#if defined(WEIGHT_F32)
float WeightAt(global const uchar* row, int i) { return ((global const float*)row)[i]; }
float8 RunAt(global const uchar* row, int i) { return vload8(0, (global const float*)row + i); }
#define IS_FLOAT

#elif defined(WEIGHT_F16)
float WeightAt(global const uchar* row, int i) { return vload_half(i, (global const half*)row); }
float8 RunAt(global const uchar* row, int i) {
  return vload_half8(0, (global const half*)row + i);
}
#define IS_FLOAT

#elif defined(WEIGHT_BF16)
float WeightAt(global const uchar* row, int i) {
  return as_float((uint)((global const ushort*)row)[i] << 16);
}
float8 RunAt(global const uchar* row, int i) {
  return as_float8(convert_uint8(vload8(0, (global const ushort*)row + i)) << 16);
}
#define IS_FLOAT

#else

// Four of the bits of each of eight bytes: the low ones or the high ones.
uchar8 Nibbles(global const uchar* bytes, bool is_high) {
  const uchar8 both = vload8(0, bytes);
  return is_high ? both >> (uchar8)(4) : both & (uchar8)(15);
}

// The nibbles of a run of a block of 32, whose first half has the low ones of 16 bytes.
uchar8 NibblesOf32(global const uchar* bytes, int i) {
  return Nibbles(bytes + i % 16, i % 32 >= 16);
}

#if defined(WEIGHT_Q4_0)
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 18;
  return HalfAt(block) * (convert_float8(NibblesOf32(block + 2, i)) - 8.0f);
}

#elif defined(WEIGHT_Q4_1)
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 20;
  return HalfAt(block) * convert_float8(NibblesOf32(block + 4, i)) + HalfAt(block + 2);
}

#elif defined(WEIGHT_Q8_0)
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 34;
  return HalfAt(block) * convert_float8(as_char8(vload8(0, block + 2 + i % 32)));
}

#elif defined(WEIGHT_Q5_0) || defined(WEIGHT_Q5_1)
// The fifth bits of a block's codes are four bytes before their other four: a byte for each run.
float8 FiveBits(global const uchar* fifth, int i) {
  const uchar8 bits = (uchar8)(fifth[i % 32 / 8]) >> (uchar8)(0, 1, 2, 3, 4, 5, 6, 7) & (uchar8)(1);
  return convert_float8(NibblesOf32(fifth + 4, i) | bits << (uchar8)(4));
}
#if defined(WEIGHT_Q5_0)
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 22;
  return HalfAt(block) * (FiveBits(block + 2, i) - 16.0f);
}
#else
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 24;
  return HalfAt(block) * FiveBits(block + 4, i) + HalfAt(block + 2);
}
#endif

#elif defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
// 32 weights have a scale and a minimum of six bits each; twelve bytes are for eight of them.
float8 Scaled(global const uchar* block, int sub, float8 codes) {
  global const uchar* packed = block + 4;
  int scale, minimum;
  if (sub < 4) {
    scale = packed[sub] & 63;
    minimum = packed[sub + 4] & 63;
  } else {
    scale = (packed[sub + 4] & 15) | (packed[sub - 4] >> 6) << 4;
    minimum = packed[sub + 4] >> 4 | (packed[sub] >> 6) << 4;
  }
  return HalfAt(block) * (float)scale * codes - HalfAt(block + 2) * (float)minimum;
}
#if defined(WEIGHT_Q4_K)
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 256 * 144;
  const int sub = i % 256 / 32;
  const uchar8 codes = Nibbles(block + 16 + sub / 2 * 32 + i % 32, sub % 2 != 0);
  return Scaled(block, sub, convert_float8(codes));
}
#else
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 256 * 176;
  const int sub = i % 256 / 32;
  const uchar8 fifth = vload8(0, block + 16 + i % 32) >> (uchar8)(sub) & (uchar8)(1);
  const uchar8 codes = Nibbles(block + 48 + sub / 2 * 32 + i % 32, sub % 2 != 0);
  return Scaled(block, sub, convert_float8(codes | fifth << (uchar8)(4)));
}
#endif

#elif defined(WEIGHT_Q6_K)
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 256 * 210;
  const int part = i % 256 / 128;
  const int quarter = i % 128 / 32;
  const uchar8 low = Nibbles(block + 64 * part + quarter % 2 * 32 + i % 32, quarter >= 2);
  const uchar8 high =
      vload8(0, block + 128 + 32 * part + i % 32) >> (uchar8)(2 * quarter) & (uchar8)(3);
  const float8 codes = convert_float8(low | high << (uchar8)(4)) - 32.0f;
  return HalfAt(block + 208) * (float)as_char(block[192 + i % 256 / 16]) * codes;
}

#else
// Codes of four bits that stand for the numbers of a table.
#if defined(WEIGHT_MXFP4)
// Twice what the four bits of E2M1 mean.
constant char kLevels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
#else
constant char kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
#endif
float8 Levels(uchar8 codes) {
  return (float8)(kLevels[codes.s0], kLevels[codes.s1], kLevels[codes.s2], kLevels[codes.s3],
                  kLevels[codes.s4], kLevels[codes.s5], kLevels[codes.s6], kLevels[codes.s7]);
}
#if defined(WEIGHT_IQ4_NL)
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 18;
  return HalfAt(block) * Levels(NibblesOf32(block + 2, i));
}
#elif defined(WEIGHT_IQ4_XS)
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 256 * 136;
  const int sub = i % 256 / 32;
  const int low = block[4 + sub / 2] >> (sub % 2 * 4) & 15;
  const int high = block[2 + sub / 4] >> (sub % 4 * 2) & 3;
  return HalfAt(block) * (float)((low | high << 4) - 32) *
         Levels(NibblesOf32(block + 8 + 16 * sub, i));
}
#else
float8 RunAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 17;
  return ldexp(1.0f, (int)block[0] - 128) * Levels(NibblesOf32(block + 1, i));
}
#endif
#endif
#endif

float Dot(float8 a, float8 b) { return dot(a.lo, b.lo) + dot(a.hi, b.hi); }

// out[t][r] = W[r] . x[t]: a row per LANES items, ROWS_OF_GROUP rows per work-group. Dimension 0 has
// LANES items per token.
#define ROWS_OF_GROUP 4
kernel void matvec(global const uchar* weights, long begin, long row_bytes, int rows, int columns,
                   global const float* x, global float* out) {
  local float sums[ROWS_OF_GROUP][LANES];
  const int lane = get_local_id(0);
  const int token = get_group_id(0);
  const int row = get_global_id(1);
  global const float* of_token = x + (long)token * columns;
  global const uchar* of_row = weights + begin + row_bytes * min(row, rows - 1);
  float sum = 0.0f;
  for (int i = 8 * lane; i + 8 <= columns; i += 8 * LANES) {
    sum += Dot(RunAt(of_row, i), vload8(0, of_token + i));
  }
#if defined(IS_FLOAT)
  const int rest = columns / 8 * 8 + lane;
  if (rest < columns) sum += WeightAt(of_row, rest) * of_token[rest];
#endif
  sum = SumOfLanes(sums[get_local_id(1)], lane, sum);
  if (lane == 0 && row < rows) out[(long)token * rows + row] = sum;
}

// out[t][r] = W[r] . x[t]: TILE rows and TILE tokens per work-group of SIDE x SIDE items, each of
// which adds up 4 x 4 of them. TILE columns at a time lie in local memory, column by column, where
// weights are unpacked once for all tokens of the tile.
#define TILE 32
#define SIDE 8
#define PADDED (TILE + 4)
#define RUNS (TILE / 8)

void StoreRun(float8 run, local float* to) {
  to[0] = run.s0, to[PADDED] = run.s1;
  to[2 * PADDED] = run.s2, to[3 * PADDED] = run.s3;
  to[4 * PADDED] = run.s4, to[5 * PADDED] = run.s5;
  to[6 * PADDED] = run.s6, to[7 * PADDED] = run.s7;
}

float8 WeightsOf(global const uchar* row, int i, int columns) {
  if (i + 8 <= columns) return RunAt(row, i);
  float run[8];
  for (int k = 0; k < 8; ++k) run[k] = 0.0f;
#if defined(IS_FLOAT)
  for (int k = 0; i + k < columns; ++k) run[k] = WeightAt(row, i + k);
#endif
  return vload8(0, run);
}

float8 TokenOf(global const float* x, int i, int columns) {
  if (i + 8 <= columns) return vload8(0, x + i);
  float run[8];
  for (int k = 0; k < 8; ++k) run[k] = i + k < columns ? x[i + k] : 0.0f;
  return vload8(0, run);
}

kernel void matmul(global const uchar* weights, long begin, long row_bytes, int rows, int columns,
                   global const float* x, int tokens, global float* out) {
  local float w_tile[TILE * PADDED];
  local float x_tile[TILE * PADDED];
  const int across = get_local_id(0);
  const int down = get_local_id(1);
  const int item = down * SIDE + across;
  const int first_row = get_group_id(0) * TILE;
  const int first_token = get_group_id(1) * TILE;
  float4 sums[4];
  for (int b = 0; b < 4; ++b) sums[b] = (float4)(0.0f);
  for (int first = 0; first < columns; first += TILE) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int run = item; run < TILE * RUNS; run += SIDE * SIDE) {
      const int line = run / RUNS;
      const int in_line = (run - line * RUNS) * 8;
      const int row = first_row + line;
      const int token = first_token + line;
      const float8 of_row =
          row < rows ? WeightsOf(weights + begin + row_bytes * row, first + in_line, columns)
                     : (float8)(0.0f);
      const float8 of_token =
          token < tokens ? TokenOf(x + (long)token * columns, first + in_line, columns)
                         : (float8)(0.0f);
      StoreRun(of_row, w_tile + in_line * PADDED + line);
      StoreRun(of_token, x_tile + in_line * PADDED + line);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < TILE; ++i) {
      const float4 w = vload4(across, w_tile + i * PADDED);
      const float4 of_x = vload4(down, x_tile + i * PADDED);
      sums[0] += w * of_x.s0;
      sums[1] += w * of_x.s1;
      sums[2] += w * of_x.s2;
      sums[3] += w * of_x.s3;
    }
  }
  for (int b = 0; b < 4; ++b) {
    const int row = first_row + 4 * across;
    const int token = first_token + 4 * down + b;
    if (token >= tokens) break;
    global float* to = out + (long)token * rows + row;
    if (row < rows) to[0] = sums[b].s0;
    if (row + 1 < rows) to[1] = sums[b].s1;
    if (row + 2 < rows) to[2] = sums[b].s2;
    if (row + 3 < rows) to[3] = sums[b].s3;
  }
}
