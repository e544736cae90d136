// Attention over keys and values in pages of 64 positions (tensor/kv_layout.h: f16 or f32).
//
// A page of a layer has, for each KV head, keys [4][head_dim][16] (blocks of 16 positions) and then
// values [64][head_dim]. Row r of a pass has position positions[r]; page i of its sequence lies in
// slot slots[begins[r] + i].
#define PAGE 64
#define KEY_BLOCK 16
#define MOST_HEAD_DIM 256
// A part of a sequence that a work-group takes has at least so many pages.
#define LEAST_PAGES 2
#if GROUP != PAGE
#error "an item per position of a page"
#endif

float Stored(global const uchar* pages, long number, int is_half) {
  return is_half != 0 ? vload_half(number, (global const half*)pages)
                      : ((global const float*)pages)[number];
}

void Store(global uchar* pages, long number, int is_half, float value) {
  if (is_half != 0) {
    vstore_half_rte(value, number, (global half*)pages);
  } else {
    ((global float*)pages)[number] = value;
  }
}

// Numbers from the first of all pages to the keys of a KV head; its values follow PAGE * head_dim
// later.
long KeysAt(int slot, int kv_heads, int kv_head, int head_dim) {
  return ((long)slot * kv_heads + kv_head) * (2 * PAGE * head_dim);
}

// From there to component 0 of the key of a position in the page; the next component is KEY_BLOCK
// later.
int KeyAt(int in_page, int head_dim) {
  return in_page / KEY_BLOCK * head_dim * KEY_BLOCK + in_page % KEY_BLOCK;
}

// Writes keys and values [rows][kv_heads][head_dim] into pages. An item per component in dimension
// 0, one per row in dimension 1.
kernel void store_kv(global const float* keys, global const float* values, global const int* slots,
                     global const int* begins, global const int* positions, int kv_heads,
                     int head_dim, int is_half, global uchar* pages) {
  const int column = get_global_id(0);
  const int row = get_global_id(1);
  if (column >= kv_heads * head_dim) return;
  const int position = positions[row];
  const int in_page = position % PAGE;
  const int i = column % head_dim;
  const long at =
      KeysAt(slots[begins[row] + position / PAGE], kv_heads, column / head_dim, head_dim);
  const long from = (long)row * kv_heads * head_dim + column;
  Store(pages, at + KeyAt(in_page, head_dim) + i * KEY_BLOCK, is_half, keys[from]);
  Store(pages, at + (PAGE + in_page) * head_dim + i, is_half, values[from]);
}

// What one part of its pages makes of a query: the largest score, the sum of exp(score - largest),
// and the sum of values with these weights, [2 + head_dim] numbers for each of `parts` parts of each
// head of each row. A work-group per head (dimension 0) and part of a row (dimension 1) takes a page
// at a time, a score per item. q is [rows][heads][head_dim]; row numbers of a launch begin with
// first_row, those of `partial` with 0. Scores are
// scale * (1 + temperature * log(1 + floor(position / period))) * q . k, then
// softcap * tanh(score / softcap) where softcap > 0; a query sees the newest `window` positions, or
// all.
kernel void attend(global const float* q, global const uchar* pages, global const int* slots,
                   global const int* begins, global const int* positions, int first_row, int heads,
                   int kv_heads, int head_dim, int is_half, int window, int parts, float scale,
                   float temperature, int period, float softcap, global float* partial) {
  local float query[MOST_HEAD_DIM];
  local float shared[GROUP];
  local float weights[GROUP];
  const int item = get_local_id(0);
  const int head = get_group_id(0);
  const int row_of_launch = get_group_id(1) / parts;
  const int part = get_group_id(1) % parts;
  const int row = first_row + row_of_launch;
  const int position = positions[row];
  const int oldest = window > 0 ? max(0, position + 1 - window) : 0;
  const int first_page = oldest / PAGE;
  const int seen_pages = position / PAGE + 1 - first_page;
  const int part_pages =
      parts == 1 ? seen_pages : max(LEAST_PAGES, (seen_pages + parts - 1) / parts);
  const int begin = first_page + part * part_pages;
  const int end = min(begin + part_pages, first_page + seen_pages);
  const float of_position =
      temperature > 0.0f ? 1.0f + temperature * log1p((float)(position / period)) : 1.0f;
  const int kv_head = head / (heads / kv_heads);
  const long of_head = ((long)row * heads + head) * head_dim;
  for (int i = item; i < head_dim; i += GROUP) query[i] = q[of_head + i] * (scale * of_position);
  barrier(CLK_LOCAL_MEM_FENCE);
  float sums[MOST_HEAD_DIM / GROUP];
  for (int d = 0; d < MOST_HEAD_DIM / GROUP; ++d) sums[d] = 0.0f;
  float largest = -INFINITY;
  float total = 0.0f;
  for (int page = begin; page < end; ++page) {
    // Of the page's positions, those that the query sees.
    const int from = max(0, oldest - page * PAGE);
    const int to = min(PAGE, position + 1 - page * PAGE);
    const bool is_seen = item >= from && item < to;
    const long keys = KeysAt(slots[begins[row] + page], kv_heads, kv_head, head_dim);
    float score = -INFINITY;
    if (is_seen) {
      const long key = keys + KeyAt(item, head_dim);
      score = 0.0f;
      for (int i = 0; i < head_dim; ++i) {
        score += query[i] * Stored(pages, key + i * KEY_BLOCK, is_half);
      }
      if (softcap > 0.0f) score = softcap * tanh(score / softcap);
    }
    const float now = fmax(largest, Combine(shared, item, score, true));
    const float shrink = exp(largest - now);
    const float weight = is_seen ? exp(score - now) : 0.0f;
    weights[item] = weight;
    total = total * shrink + Combine(shared, item, weight, false);
    const long values = keys + PAGE * head_dim;
    for (int d = 0; d < MOST_HEAD_DIM / GROUP; ++d) {
      const int i = item + GROUP * d;
      if (i < head_dim) {
        float sum = sums[d] * shrink;
        for (int p = from; p < to; ++p) {
          sum += weights[p] * Stored(pages, values + p * head_dim + i, is_half);
        }
        sums[d] = sum;
      }
    }
    largest = now;
  }
  const long out = (((long)row_of_launch * heads + head) * parts + part) * (2 + head_dim);
  if (item == 0) {
    partial[out] = largest;
    partial[out + 1] = total;
  }
  for (int d = 0; d < MOST_HEAD_DIM / GROUP; ++d) {
    const int i = item + GROUP * d;
    if (i < head_dim) partial[out + 2 + i] = sums[d];
  }
}

// out [rows][heads][head_dim] from what `attend` left for all parts of a row, in their order. With
// sinks, a number per head, the softmax has one more score, which has no value. A work-group per
// head (dimension 0) and row of the launch (dimension 1).
kernel void merge_parts(global const float* partial, global const float* sinks, int has_sinks,
                        int first_row, int heads, int head_dim, int parts, global float* out) {
  const int item = get_local_id(0);
  const int head = get_group_id(0);
  const int row = get_group_id(1);
  const int stride = 2 + head_dim;
  global const float* mine = partial + ((long)row * heads + head) * parts * stride;
  float largest = has_sinks != 0 ? sinks[head] : -INFINITY;
  for (int part = 0; part < parts; ++part) largest = fmax(largest, mine[part * stride]);
  float total = has_sinks != 0 ? exp(sinks[head] - largest) : 0.0f;
  for (int part = 0; part < parts; ++part) {
    total += exp(mine[part * stride] - largest) * mine[part * stride + 1];
  }
  for (int i = item; i < head_dim; i += GROUP) {
    float sum = 0.0f;
    for (int part = 0; part < parts; ++part) {
      sum += exp(mine[part * stride] - largest) * mine[part * stride + 2 + i];
    }
    out[((long)(first_row + row) * heads + head) * head_dim + i] = sum / total;
  }
}
