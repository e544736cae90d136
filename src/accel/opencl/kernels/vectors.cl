// Operations on rows of floats; work-groups of GROUP items where a row is theirs.

// out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight: a work-group per row. out may be x.
kernel void rms_norm(global const float* x, global const float* weight, int columns, float eps,
                     global float* out) {
  local float values[GROUP];
  const int item = get_local_id(0);
  const long row = (long)get_group_id(0) * columns;
  float squares = 0.0f;
  for (int i = item; i < columns; i += GROUP) squares += x[row + i] * x[row + i];
  const float mean = Combine(values, item, squares, false) / (float)columns;
  const float scale = 1.0f / sqrt(mean + eps);
  for (int i = item; i < columns; i += GROUP) out[row + i] = x[row + i] * scale * weight[i];
}

// out[r] = (x[r] - mean) / sqrt(variance + eps) * weight + bias: a work-group per row. out may be x.
kernel void layer_norm(global const float* x, global const float* weight, global const float* bias,
                       int columns, float eps, global float* out) {
  local float values[GROUP];
  const int item = get_local_id(0);
  const long row = (long)get_group_id(0) * columns;
  float sum = 0.0f;
  for (int i = item; i < columns; i += GROUP) sum += x[row + i];
  const float mean = Combine(values, item, sum, false) / (float)columns;
  float squares = 0.0f;
  for (int i = item; i < columns; i += GROUP) {
    const float deviation = x[row + i] - mean;
    squares += deviation * deviation;
  }
  const float variance = Combine(values, item, squares, false) / (float)columns;
  const float scale = 1.0f / sqrt(variance + eps);
  for (int i = item; i < columns; i += GROUP) {
    out[row + i] = (x[row + i] - mean) * scale * weight[i] + bias[i];
  }
}

// x[r] = softmax(x[r]) in place: a work-group per row. Entries of -inf become 0.
kernel void softmax(global float* x, int columns) {
  local float values[GROUP];
  const int item = get_local_id(0);
  const long row = (long)get_group_id(0) * columns;
  float largest = -INFINITY;
  for (int i = item; i < columns; i += GROUP) largest = fmax(largest, x[row + i]);
  largest = Combine(values, item, largest, true);
  float sum = 0.0f;
  for (int i = item; i < columns; i += GROUP) {
    const float weight = exp(x[row + i] - largest);
    x[row + i] = weight;
    sum += weight;
  }
  sum = Combine(values, item, sum, false);
  for (int i = item; i < columns; i += GROUP) x[row + i] /= sum;
}

// Rotates pairs of x [tokens][heads][head_dim] by the angles of their token: cosines and sines are
// [tokens][pairs]. halves: pairs are (i, i + pairs), else (2i, 2i + 1). An item per pair in
// dimension 0, one per head of a token in dimension 1.
kernel void rope(global float* x, global const float* cosines, global const float* sines, int heads,
                 int head_dim, int pairs, int halves) {
  const int pair = get_global_id(0);
  const int head = get_global_id(1);
  if (pair >= pairs) return;
  global float* of_head = x + (long)head * head_dim;
  const int first = halves != 0 ? pair : 2 * pair;
  const int second = halves != 0 ? pair + pairs : 2 * pair + 1;
  const long angle = (long)(head / heads) * pairs + pair;
  const float a = of_head[first];
  const float b = of_head[second];
  of_head[first] = a * cosines[angle] - b * sines[angle];
  of_head[second] = a * sines[angle] + b * cosines[angle];
}

// out[i] = Activate(gate[i], up[i]). out may be gate or up.
kernel void activate(global const float* gate, global const float* up, long count, int activation,
                     float threshold, global float* out) {
  const long i = get_global_id(0);
  if (i < count) out[i] = Activate(activation, threshold, gate[i], up[i]);
}

// out[i] = Activate(gate[i], 1): an FFN of two matrices. out may be gate.
kernel void activate_alone(global const float* gate, long count, int activation, float threshold,
                           global float* out) {
  const long i = get_global_id(0);
  if (i < count) out[i] = Activate(activation, threshold, gate[i], 1.0f);
}

// x[i] = 0.
kernel void clear(global float* x, long count) {
  const long i = get_global_id(0);
  if (i < count) x[i] = 0.0f;
}

// out[i] = x[rows[i]]. An item per column in dimension 0, one per row in dimension 1; so the next
// two.
kernel void gather_rows(global const float* x, global const int* rows, int columns,
                        global float* out) {
  const int column = get_global_id(0);
  const int i = get_global_id(1);
  if (column < columns) out[(long)i * columns + column] = x[(long)rows[i] * columns + column];
}

// out[rows[i]] += weights[i] * x[i]; no row twice.
kernel void scatter_add_rows(global const float* x, global const int* rows,
                             global const float* weights, int columns, global float* out) {
  const int column = get_global_id(0);
  const int i = get_global_id(1);
  if (column >= columns) return;
  out[(long)rows[i] * columns + column] += weights[i] * x[(long)i * columns + column];
}

// x[i] += row, which begins at number `begin` of its buffer.
kernel void add_to_rows(global const float* row, long begin, int columns, global float* x) {
  const int column = get_global_id(0);
  const int i = get_global_id(1);
  if (column < columns) x[(long)i * columns + column] += row[begin + column];
}

// out[i] += scale * a[i].
kernel void add(global const float* a, float scale, long count, global float* out) {
  const long i = get_global_id(0);
  if (i < count) out[i] += scale * a[i];
}

// out[t][c] = sum of partial[t][s][c] over slices s, ascending. An item per column in dimension 0,
// one per token in dimension 1.
kernel void merge_slices(global const float* partial, int slices, int columns, global float* out) {
  const int column = get_global_id(0);
  const int token = get_global_id(1);
  if (column >= columns) return;
  float sum = 0.0f;
  for (int slice = 0; slice < slices; ++slice) {
    sum += partial[((long)token * slices + slice) * columns + column];
  }
  out[(long)token * columns + column] = sum;
}
