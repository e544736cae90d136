// Causal attention of new tokens over F16 keys and values [positions][kv_heads][head_dim].
#define MOST_HEAD_DIM 256

// out[t][h] = sum_p softmax_p(scale * q[t][h] . k[p][h / group]) * v[p][h / group] over positions
// p <= first_position + t. q and out are [tokens][heads][head_dim]. A work-group per head
// (dimension 0) and token (dimension 1) goes over GROUP positions at a time, a score per item, and
// keeps a running maximum and sum.
kernel void attention(global const float* q, global const uchar* keys, global const uchar* values,
                      int heads, int kv_heads, int head_dim, int first_position, float scale,
                      global float* out) {
  local float query[MOST_HEAD_DIM];
  local float shared[GROUP];
  local float weights[GROUP];
  const int item = get_local_id(0);
  const int head = get_group_id(0);
  const int token = get_group_id(1);
  const long of_head = ((long)token * heads + head) * head_dim;
  const int kv_head = head / (heads / kv_heads);
  const int positions = first_position + token + 1;
  for (int i = item; i < head_dim; i += GROUP) query[i] = q[of_head + i] * scale;
  barrier(CLK_LOCAL_MEM_FENCE);
  float sums[MOST_HEAD_DIM / GROUP];
  for (int d = 0; d < MOST_HEAD_DIM / GROUP; ++d) sums[d] = 0.0f;
  float largest = -INFINITY;
  float total = 0.0f;
  for (int first = 0; first < positions; first += GROUP) {
    const int count = min(GROUP, positions - first);
    float score = -INFINITY;
    if (item < count) {
      const long row = ((long)(first + item) * kv_heads + kv_head) * head_dim;
      score = 0.0f;
      for (int i = 0; i < head_dim; ++i) {
        score += query[i] * vload_half(row + i, (global const half*)keys);
      }
    }
    const float now = fmax(largest, Combine(shared, item, score, true));
    const float shrink = exp(largest - now);
    const float weight = item < count ? exp(score - now) : 0.0f;
    weights[item] = weight;
    total = total * shrink + Combine(shared, item, weight, false);
    for (int d = 0; d < MOST_HEAD_DIM / GROUP; ++d) {
      const int i = item + GROUP * d;
      if (i < head_dim) {
        float sum = sums[d] * shrink;
        for (int p = 0; p < count; ++p) {
          const long row = ((long)(first + p) * kv_heads + kv_head) * head_dim;
          sum += weights[p] * vload_half(row + i, (global const half*)values);
        }
        sums[d] = sum;
      }
    }
    largest = now;
  }
  for (int d = 0; d < MOST_HEAD_DIM / GROUP; ++d) {
    const int i = item + GROUP * d;
    if (i < head_dim) out[of_head + i] = sums[d] / total;
  }
}
