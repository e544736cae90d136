// Weight matrices as they lie in GGUF files (tensor/blocks.h), times tokens of floats. One program
// per type of weights; WeightAt is all that differs: weight i of a row. A matrix begins at byte
// `begin` of its buffer.

#if defined(WEIGHT_F32)
float WeightAt(global const uchar* row, int i) { return ((global const float*)row)[i]; }

#elif defined(WEIGHT_F16)
float WeightAt(global const uchar* row, int i) { return vload_half(i, (global const half*)row); }

#elif defined(WEIGHT_Q4_0)
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 18;
  const int byte = block[2 + i % 16];
  return HalfAt(block) * (float)((i % 32 < 16 ? byte & 15 : byte >> 4) - 8);
}

#elif defined(WEIGHT_Q8_0)
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 34;
  return HalfAt(block) * (float)as_char(block[2 + i % 32]);
}

#elif defined(WEIGHT_BF16)
float WeightAt(global const uchar* row, int i) {
  return as_float((uint)((global const ushort*)row)[i] << 16);
}

#elif defined(WEIGHT_Q4_1)
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 20;
  const int byte = block[4 + i % 16];
  return HalfAt(block) * (float)(i % 32 < 16 ? byte & 15 : byte >> 4) + HalfAt(block + 2);
}

#elif defined(WEIGHT_Q5_0) || defined(WEIGHT_Q5_1)
// The fifth bits of a block's codes are four bytes before their other four.
int FiveBits(global const uchar* fifth, int i) {
  const int byte = fifth[4 + i % 16];
  return (i % 32 < 16 ? byte & 15 : byte >> 4) | (fifth[i % 32 / 8] >> (i % 8) & 1) << 4;
}
#if defined(WEIGHT_Q5_0)
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 22;
  return HalfAt(block) * (float)(FiveBits(block + 2, i) - 16);
}
#else
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 24;
  return HalfAt(block) * (float)FiveBits(block + 4, i) + HalfAt(block + 2);
}
#endif

#elif defined(WEIGHT_Q4_K) || defined(WEIGHT_Q5_K)
// Scale and minimum of 32 weights, six bits each, of twelve bytes for eight of them.
float ScaledCode(global const uchar* block, int sub, int code) {
  global const uchar* packed = block + 4;
  int scale, minimum;
  if (sub < 4) {
    scale = packed[sub] & 63;
    minimum = packed[sub + 4] & 63;
  } else {
    scale = (packed[sub + 4] & 15) | (packed[sub - 4] >> 6) << 4;
    minimum = packed[sub + 4] >> 4 | (packed[sub] >> 6) << 4;
  }
  return HalfAt(block) * (float)scale * (float)code - HalfAt(block + 2) * (float)minimum;
}
#if defined(WEIGHT_Q4_K)
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 256 * 144;
  const int sub = i % 256 / 32;
  const int byte = block[16 + i % 256 / 64 * 32 + i % 32];
  return ScaledCode(block, sub, sub % 2 == 0 ? byte & 15 : byte >> 4);
}
#else
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 256 * 176;
  const int sub = i % 256 / 32;
  const int byte = block[48 + i % 256 / 64 * 32 + i % 32];
  const int fifth = block[16 + i % 32] >> sub & 1;
  return ScaledCode(block, sub, (sub % 2 == 0 ? byte & 15 : byte >> 4) | fifth << 4);
}
#endif

#elif defined(WEIGHT_IQ4_NL) || defined(WEIGHT_IQ4_XS)
constant char kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
#if defined(WEIGHT_IQ4_NL)
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 18;
  const int byte = block[2 + i % 16];
  return HalfAt(block) * (float)kLevels[i % 32 < 16 ? byte & 15 : byte >> 4];
}
#else
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 256 * 136;
  const int sub = i % 256 / 32;
  const int low = block[4 + sub / 2] >> (sub % 2 * 4) & 15;
  const int high = block[2 + sub / 4] >> (sub % 4 * 2) & 3;
  const int byte = block[8 + 16 * sub + i % 16];
  const int level = kLevels[i % 32 < 16 ? byte & 15 : byte >> 4];
  return HalfAt(block) * (float)((low | high << 4) - 32) * (float)level;
}
#endif

#elif defined(WEIGHT_MXFP4)
// Twice what the four bits of E2M1 mean.
constant char kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 32 * 17;
  const int byte = block[1 + i % 16];
  return ldexp((float)kDoubled[i % 32 < 16 ? byte & 15 : byte >> 4], (int)block[0] - 128);
}

#elif defined(WEIGHT_Q6_K)
float WeightAt(global const uchar* row, int i) {
  global const uchar* block = row + i / 256 * 210;
  const int part = i % 256 / 128;
  const int quarter = i % 128 / 32;
  const int low = block[64 * part + quarter % 2 * 32 + i % 32];
  const int high = block[128 + 32 * part + i % 32] >> (2 * quarter) & 3;
  const int code = ((quarter < 2 ? low & 15 : low >> 4) | high << 4) - 32;
  const int scale = as_char(block[192 + i % 256 / 16]);
  return HalfAt(block + 208) * (float)scale * (float)code;
}
#endif

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
  for (int i = lane; i < columns; i += LANES) sum += WeightAt(of_row, i) * of_token[i];
  sum = SumOfLanes(sums[get_local_id(1)], lane, sum);
  if (lane == 0 && row < rows) out[(long)token * rows + row] = sum;
}

// out[t][r] = W[r] . x[t]: TILE rows and TILE tokens per work-group of 8 x 8 items, each of which
// adds up 4 x 4 of them. TILE columns at a time are unpacked to local memory, once for all tokens
// of the tile.
#define TILE 32
#define SIDE 8
#define OWN 4
kernel void matmul(global const uchar* weights, long begin, long row_bytes, int rows, int columns,
                   global const float* x, int tokens, global float* out) {
  local float w_tile[TILE][TILE + 1];
  local float x_tile[TILE][TILE + 1];
  const int across = get_local_id(0);
  const int down = get_local_id(1);
  const int item = down * SIDE + across;
  const int first_row = get_group_id(0) * TILE;
  const int first_token = get_group_id(1) * TILE;
  float sums[OWN][OWN];
  for (int a = 0; a < OWN; ++a) {
    for (int b = 0; b < OWN; ++b) sums[a][b] = 0.0f;
  }
  for (int first = 0; first < columns; first += TILE) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int place = item; place < TILE * TILE; place += SIDE * SIDE) {
      const int line = place / TILE;
      const int in_line = place - line * TILE;
      const int column = first + in_line;
      const bool is_there = column < columns;
      const int row = first_row + line;
      const int token = first_token + line;
      w_tile[line][in_line] =
          is_there && row < rows ? WeightAt(weights + begin + row_bytes * row, column) : 0.0f;
      x_tile[line][in_line] =
          is_there && token < tokens ? x[(long)token * columns + column] : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < TILE; ++i) {
      for (int a = 0; a < OWN; ++a) {
        for (int b = 0; b < OWN; ++b) {
          sums[a][b] += w_tile[across + SIDE * a][i] * x_tile[down + SIDE * b][i];
        }
      }
    }
  }
  for (int a = 0; a < OWN; ++a) {
    for (int b = 0; b < OWN; ++b) {
      const int row = first_row + across + SIDE * a;
      const int token = first_token + down + SIDE * b;
      if (row < rows && token < tokens) out[(long)token * rows + row] = sums[a][b];
    }
  }
}
