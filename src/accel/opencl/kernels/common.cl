// All programs begin with this file. OpenCL C 1.2; binary16 is loaded with vload_half, which needs no
// extension. Results of a device are the same every time: sums have one order, and nothing is
// added atomically.

// Work-items that add up a dot product together.
#define LANES 32

// The sum of all LANES items of a row, in each of them. `sums` has LANES floats of the row's own.
// All items of the work-group call it.
float SumOfLanes(local float* sums, int lane, float own) {
  barrier(CLK_LOCAL_MEM_FENCE);  // other items may still read the last sum
  sums[lane] = own;
  for (int half_way = LANES / 2; half_way > 0; half_way /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < half_way) sums[lane] += sums[lane + half_way];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return sums[0];
}

// Work-items that work on a row of floats together.
#define GROUP 64

// The sum, or with `is_max` the maximum, of all items of the work-group, in each of them.
float Combine(local float* values, int item, float own, bool is_max) {
  barrier(CLK_LOCAL_MEM_FENCE);  // other items may still read the last result
  values[item] = own;
  for (int half_way = GROUP / 2; half_way > 0; half_way /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_way) {
      const float other = values[item + half_way];
      values[item] = is_max ? fmax(values[item], other) : values[item] + other;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return values[0];
}

// A binary16 at any even address.
float HalfAt(global const uchar* at) { return vload_half(0, (global const half*)at); }

// A little-endian float at any address.
float FloatAt(global const uchar* at) {
  return as_float(at[0] | (uint)at[1] << 8 | (uint)at[2] << 16 | (uint)at[3] << 24);
}

// The numbers of FfnActivation (tensor/op_kinds.h).
#define SILU 0
#define RELU 1
#define FAT_RELU 2
#define D_RELU 3
#define THRESHOLDED_SILU 4
#define GELU 5
#define GELU_ERF 6
#define CLAMPED_SWIGLU 7

float Silu(float x) { return x / (1.0f + exp(-x)); }

// What a gate and an up product hand to down (kernels/kernel_table.h, ffn_activation).
float Activate(int activation, float threshold, float gate, float up) {
  switch (activation) {
    case SILU:
      return Silu(gate) * up;
    case RELU:
      return (gate > 0.0f ? gate : 0.0f) * up;
    case FAT_RELU:
      return (gate > threshold ? gate : 0.0f) * up;
    case D_RELU:
      return (gate > 0.0f ? gate : 0.0f) * (up > 0.0f ? up : 0.0f);
    case THRESHOLDED_SILU: {
      const float silu = Silu(gate);
      return (fabs(silu) > threshold ? silu : 0.0f) * up;
    }
    case GELU: {
      const float inner = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
      return 0.5f * gate * (1.0f + tanh(inner)) * up;
    }
    case GELU_ERF:
      return 0.5f * gate * (1.0f + erf(gate * 0.7071067812f)) * up;
    default: {  // CLAMPED_SWIGLU
      const float m = gate < threshold ? gate : threshold;
      const float c = clamp(up, -threshold, threshold);
      return m / (1.0f + exp(-1.702f * m)) * (c + 1.0f);
    }
  }
}
