// An FFN by single neurons (P1 section 5.4), whose rows lie as in bundles: row groups
// (tensor/row_groups.h), or F16 numbers. Nothing is converted to a dense matrix: a work-group takes
// a listed neuron of a token, and ends at once where there is none or where its gate is silent.
//
// Rows are read in words of a few neighbouring codes. One program per type of weights says what a
// word is:
//   WORD_COLUMNS                 columns of a word
//   Words(columns)               words of a row, some of which are padding
//   Column(word, columns)        the first column of a word; not below `columns` in padding
//   LoadWord(row, word, columns) its weights

#if defined(WEIGHT_F16)
#define WORD_COLUMNS 4
typedef float4 Weights;

int Words(int columns) { return columns / 4; }
int Column(int word, int columns) { return 4 * word; }
Weights LoadWord(global const uchar* row, int word, int columns) {
  return vload_half4(word, (global const half*)row);
}
float DotX(Weights weights, global const float* x) { return dot(weights, vload4(0, x)); }
void StoreSums(Weights sums, global float* out) {
  out[0] = sums.s0, out[1] = sums.s1, out[2] = sums.s2, out[3] = sums.s3;
}

#else  // row groups
#define GROUP_BLOCKS 16
#if defined(WEIGHT_Q8_0)
#define WORD_COLUMNS 4
#define LINES 8
typedef float4 Weights;
float DotX(Weights weights, global const float* x) { return dot(weights, vload4(0, x)); }
void StoreSums(Weights sums, global float* out) {
  out[0] = sums.s0, out[1] = sums.s1, out[2] = sums.s2, out[3] = sums.s3;
}
#else
#define WORD_COLUMNS 8
#define LINES 4
typedef float8 Weights;
float DotX(Weights weights, global const float* x) {
  const float8 of_x = vload8(0, x);
  return dot(weights.lo, of_x.lo) + dot(weights.hi, of_x.hi);
}
void StoreSums(Weights sums, global float* out) {
  out[0] = sums.s0, out[1] = sums.s1, out[2] = sums.s2, out[3] = sums.s3;
  out[4] = sums.s4, out[5] = sums.s5, out[6] = sums.s6, out[7] = sums.s7;
}
#endif

int Lanes(int columns) { return (columns / 32 + 3) / 4 * 4; }
int Words(int columns) { return Lanes(columns) * LINES; }

// Returns the block that a word belongs to and its line there. Words are numbered in the order in
// which they lie.
int2 BlockAndLine(int word, int columns) {
  const int group = word / (GROUP_BLOCKS * LINES);
  const int place = word - group * GROUP_BLOCKS * LINES;
  const int lanes = min(GROUP_BLOCKS, Lanes(columns) - GROUP_BLOCKS * group);
  const int line = place / lanes;
  return (int2)(GROUP_BLOCKS * group + place - line * lanes, line);
}

int Column(int word, int columns) {
  const int2 at = BlockAndLine(word, columns);
  return 32 * at.x + WORD_COLUMNS * at.y;
}

Weights LoadWord(global const uchar* row, int word, int columns) {
  const int block = BlockAndLine(word, columns).x;
  const int lanes = Lanes(columns);
  global const uchar* scales = row + 4 * LINES * lanes;
  const float scale = HalfAt(scales + 2 * block);
  const uchar4 bytes = vload4(word, row);
#if defined(WEIGHT_Q8_0)
  return scale * convert_float4(as_char4(bytes));
#else
  const float8 codes = (float8)(convert_float4(bytes & (uchar4)(15)), convert_float4(bytes >> (uchar4)(4)));
#if defined(WEIGHT_Q4_1)
  return scale * codes + HalfAt(scales + 2 * lanes + 2 * block);
#else
  return scale * (codes - 8.0f);
#endif
#endif
}
#endif

// A row . x, in all items of the work-group.
float RowDot(global const uchar* row, int columns, global const float* x, local float* sums) {
  const int lane = get_local_id(0);
  float sum = 0.0f;
  for (int word = lane; word < Words(columns); word += LANES) {
    const int column = Column(word, columns);
    if (column < columns) sum += DotX(LoadWord(row, word, columns), x + column);
  }
  return SumOfLanes(sums, lane, sum);
}

// A neuron's bias, where it has one (bias >= 0).
float BiasAt(global const uchar* rows, long bias, long stride, int neuron) {
  return bias < 0 ? 0.0f : FloatAt(rows + bias + stride * neuron);
}

// gates[t][i] = gate row list[t][i] . x[t], plus its bias, for i < counts[t]. Lists of tokens are
// list_stride apart; 0: all tokens have the first one. Results are max_count apart. Dimension 0 has
// LANES items per token, dimension 1 an item per entry of the longest list.
kernel void neuron_gates(global const uchar* rows, long first, long bias, long stride, int columns,
                         global const int* list, int list_stride, global const int* counts,
                         global const float* x, int max_count, global float* gates) {
  local float sums[LANES];
  const int token = get_group_id(0);
  const int place = get_global_id(1);
  if (place >= counts[list_stride == 0 ? 0 : token]) return;
  const int neuron = list[token * list_stride + place];
  const float sum =
      RowDot(rows + first + stride * neuron, columns, x + (long)token * columns, sums);
  if (get_local_id(0) == 0) {
    gates[(long)token * max_count + place] = sum + BiasAt(rows, bias, stride, neuron);
  }
}

// factors[t][i] = what neuron list[t][i] hands to down: Activate(gate, up), or Activate(gate, 1)
// where is_gated is 0. Where `skips`, neurons whose gates are silent (ops/silent_gates.h) get 0 and
// their up rows are not read.
kernel void neuron_factors(global const uchar* rows, long first, long bias, long stride, int columns,
                           global const int* list, int list_stride, global const int* counts,
                           global const float* x, int max_count, global const float* gates,
                           int is_gated, int activation, float threshold, int skips, float below,
                           float from, float to, global float* factors) {
  local float sums[LANES];
  const int token = get_group_id(0);
  const int place = get_global_id(1);
  if (place >= counts[list_stride == 0 ? 0 : token]) return;
  const long at = (long)token * max_count + place;
  const float gate = gates[at];
  if (skips != 0 && (gate <= below || (gate >= from && gate <= to))) {
    if (get_local_id(0) == 0) factors[at] = 0.0f;
    return;
  }
  float up = 1.0f;
  if (is_gated != 0) {
    const int neuron = list[token * list_stride + place];
    up = RowDot(rows + first + stride * neuron, columns, x + (long)token * columns, sums) +
         BiasAt(rows, bias, stride, neuron);
  }
  if (get_local_id(0) == 0) factors[at] = Activate(activation, threshold, gate, up);
}

// partial[t][s][c] = sum of factors[t][i] * down row list[t][i], column c, over the entries i of
// slice s of the list, ascending; entries whose factor is 0 are skipped. Dimension 0 has an item
// per word of a row, dimension 1 one per token and slice.
kernel void neuron_down(global const uchar* rows, long first, long stride, int columns,
                        global const int* list, int list_stride, global const int* counts,
                        int max_count, global const float* factors, int slices,
                        global float* partial) {
  const int word = get_global_id(0);
  const int token = get_global_id(1) / slices;
  const int slice = get_global_id(1) - token * slices;
  if (word >= Words(columns)) return;
  const int column = Column(word, columns);
  if (column >= columns) return;
  const int count = counts[list_stride == 0 ? 0 : token];
  const int of_slice = (count + slices - 1) / slices;
  const int begin = min(count, slice * of_slice);
  const int end = min(count, begin + of_slice);
  Weights sums = (Weights)(0.0f);
  for (int i = begin; i < end; ++i) {
    const float factor = factors[(long)token * max_count + i];
    if (factor == 0.0f) continue;
    const int neuron = list[token * list_stride + i];
    sums += factor * LoadWord(rows + first + stride * neuron, word, columns);
  }
  StoreSums(sums, partial + ((long)token * slices + slice) * columns + column);
}
