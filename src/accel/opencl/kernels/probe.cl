// Kernels that measure a device; nobody needs what they compute.

// sums[i] = the sum of words i, i + items, ... of `count` words of four floats, `items` being the
// size of the launch: neighbours read neighbouring words, as fast as memory delivers them.
kernel void read_all(global const float4* words, int count, global float* sums) {
  const int items = get_global_size(0);
  float4 sum = (float4)(0.0f);
  for (int i = get_global_id(0); i < count; i += items) sum += words[i];
  sums[get_global_id(0)] = sum.x + sum.y + sum.z + sum.w;
}
