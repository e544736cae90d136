// The scalar table: plain loops that say what every kernel means. It runs everywhere and is the
// oracle of the tests, so sums are in double and operations are in the order of their formulas.
#include <cmath>
#include <cstring>

#include "kernels/reference_rows.h"
#include "kernels/tables.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

template <class T>
T LoadAs(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// One weight of each float type, from bytes of any alignment.
struct F32Weight {
  static constexpr int kBytes = 4;
  static float Load(const std::byte* p) { return LoadAs<float>(p); }
};
struct F16Weight {
  static constexpr int kBytes = 2;
  static float Load(const std::byte* p) { return HalfToFloat(LoadAs<uint16_t>(p)); }
};
struct BF16Weight {
  static constexpr int kBytes = 2;
  static float Load(const std::byte* p) { return Bf16ToFloat(LoadAs<uint16_t>(p)); }
};

template <class Weight>
struct FloatDot {
  using Activation = float;
  static double Dot(const std::byte* w, const float* x, int64_t k) {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += double{Weight::Load(w + i * Weight::kBytes)} * x[i];
    return sum;
  }
};

// Dot products of one block of weights with one block of activations.
double BlockDot(const BlockQ8_0& w, const BlockQ8& x) {
  int32_t sum = 0;
  for (int i = 0; i < 32; ++i) sum += w.qs[i] * x.codes[i];
  return double{HalfToFloat(w.d)} * x.scale * sum;
}

int32_t NibbleDot(const uint8_t* qs, const int8_t* codes) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += (qs[i] & 15) * codes[i] + (qs[i] >> 4) * codes[i + 16];
  return sum;
}

double BlockDot(const BlockQ4_0& w, const BlockQ8& x) {
  return double{HalfToFloat(w.d)} * x.scale * (NibbleDot(w.qs, x.codes) - 8 * x.sum);
}

double BlockDot(const BlockQ4_1& w, const BlockQ8& x) {
  const double codes = double{HalfToFloat(w.d)} * NibbleDot(w.qs, x.codes);
  return x.scale * (codes + double{HalfToFloat(w.m)} * x.sum);
}

template <class Block>
struct QuantizedDot {
  using Activation = BlockQ8;
  static double Dot(const std::byte* w, const BlockQ8* x, int64_t k) {
    double sum = 0;
    for (int64_t b = 0; b < k / 32; ++b) {
      const auto* activation = reinterpret_cast<const std::byte*>(x + b);
      sum += BlockDot(LoadAs<Block>(w + b * sizeof(Block)), LoadAs<BlockQ8>(activation));
    }
    return sum;
  }
};

template <class Type>
void MatMul(const MatMulArgs& a) noexcept {
  const auto* x = static_cast<const typename Type::Activation*>(a.x);
  for (int64_t t = 0; t < a.tokens; ++t) {
    for (int64_t r = a.row_begin; r < a.row_end; ++r) {
      const std::byte* w = a.weights + static_cast<size_t>(r) * a.row_bytes;
      const double dot = Type::Dot(w, x + t * a.x_stride, a.k);
      a.out[t * a.out_stride + r - a.row_begin] = static_cast<float>(dot);
    }
  }
}

// The float operations are part of the contract (kernel_table.h), so no double here.
void QuantizeBlock(const float* x, BlockQ8* out) {
  uint32_t max_bits = 0;
  for (int i = 0; i < 32; ++i) {
    const uint32_t bits = BitsFromFloat(x[i]) & 0x7fffffff;  // ordered like |x|, NaN on top
    if (bits > max_bits) max_bits = bits;
  }
  const float max = FloatFromBits(max_bits);
  *out = BlockQ8{};
  if (max < kMinQ8Magnitude) return;
  out->scale = max / 127.0f;
  if (!std::isfinite(max)) {
    out->scale = std::nanf("");
    return;
  }
  const float inverse = 127.0f / max;
  for (int i = 0; i < 32; ++i) {
    const int32_t code = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
    out->codes[i] = static_cast<int8_t>(code);
    out->sum += code;
  }
}

void QuantizeQ8(const float* x, int64_t n, BlockQ8* out) noexcept {
  for (int64_t i = 0; i < n; i += 32) QuantizeBlock(x + i, out + i / 32);
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) noexcept {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * scale * weight[i]);
}

void Rope(float* x, const float* cos, const float* sin, int64_t pairs, RopeLayout layout) noexcept {
  const bool adjacent = layout == RopeLayout::kAdjacent;
  for (int64_t i = 0; i < pairs; ++i) {
    float& first = x[adjacent ? 2 * i : i];
    float& second = x[adjacent ? 2 * i + 1 : i + pairs];
    const double a = first;
    const double b = second;
    first = static_cast<float>(a * cos[i] - b * sin[i]);
    second = static_cast<float>(a * sin[i] + b * cos[i]);
  }
}

void Softmax(float* x, int64_t n) noexcept {
  float max = x[0];
  for (int64_t i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(double{x[i]} - max);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(std::exp(double{x[i]} - max) / sum);
}

template <FfnActivation kind>
float Activate(float g, float u, float threshold) {
  switch (kind) {
    case FfnActivation::kSilu:
      return static_cast<float>(g / (1.0 + std::exp(-double{g})) * u);
    case FfnActivation::kRelu:
      return g > 0 ? g * u : 0.0f;
    case FfnActivation::kFatRelu:
      return g > threshold ? g * u : 0.0f;
    case FfnActivation::kDRelu:
      return g > 0 && u > 0 ? g * u : 0.0f;
  }
  return 0.0f;
}

template <FfnActivation kind>
void ActivateFfn(const float* gate, const float* up, int64_t n, float threshold,
                 float* out) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = Activate<kind>(gate[i], up[i], threshold);
}

void Add(const float* a, int64_t n, float* out) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] += a[i];
}

void ScaledAdd(const float* a, float s, int64_t n, float* out) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(out[i] + double{s} * a[i]);
}

void ToHalf(const float* x, int64_t n, uint16_t* out) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = FloatToHalf(x[i]);
}

float FromStored(float v) { return v; }
float FromStored(uint16_t v) { return HalfToFloat(v); }

template <class T>
void AttentionScores(const float* q, const T* keys, int64_t count, int64_t head_dim,
                     float* scores) noexcept {
  for (int64_t j = 0; j < count; ++j) {
    double sum = 0;
    for (int64_t d = 0; d < head_dim; ++d) {
      sum += double{q[d]} * FromStored(keys[j * head_dim + d]);
    }
    scores[j] = static_cast<float>(sum);
  }
}

template <class T>
void AttentionValues(const float* weights, const T* values, int64_t count, int64_t head_dim,
                     float* out) noexcept {
  for (int64_t d = 0; d < head_dim; ++d) {
    double sum = out[d];
    for (int64_t j = 0; j < count; ++j) {
      sum += double{weights[j]} * FromStored(values[j * head_dim + d]);
    }
    out[d] = static_cast<float>(sum);
  }
}

constexpr KernelTable MakeTable() {
  KernelTable t{};
  t.isa = "scalar";
  t.matmul[static_cast<int>(DType::kF32)] = MatMul<FloatDot<F32Weight>>;
  t.matmul[static_cast<int>(DType::kF16)] = MatMul<FloatDot<F16Weight>>;
  t.matmul[static_cast<int>(DType::kBF16)] = MatMul<FloatDot<BF16Weight>>;
  t.matmul[static_cast<int>(DType::kQ8_0)] = MatMul<QuantizedDot<BlockQ8_0>>;
  t.matmul[static_cast<int>(DType::kQ4_0)] = MatMul<QuantizedDot<BlockQ4_0>>;
  t.matmul[static_cast<int>(DType::kQ4_1)] = MatMul<QuantizedDot<BlockQ4_1>>;
  t.quantize_q8 = QuantizeQ8;
  SetReferenceRows(t);
  t.rms_norm = RmsNorm;
  t.rope = Rope;
  t.softmax = Softmax;
  t.ffn_activation[static_cast<int>(FfnActivation::kSilu)] = ActivateFfn<FfnActivation::kSilu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kRelu)] = ActivateFfn<FfnActivation::kRelu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kFatRelu)] =
      ActivateFfn<FfnActivation::kFatRelu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kDRelu)] = ActivateFfn<FfnActivation::kDRelu>;
  t.add = Add;
  t.scaled_add = ScaledAdd;
  t.float_to_half = ToHalf;
  t.attn_scores_f32 = AttentionScores<float>;
  t.attn_scores_f16 = AttentionScores<uint16_t>;
  t.attn_values_f32 = AttentionValues<float>;
  t.attn_values_f16 = AttentionValues<uint16_t>;
  return t;
}

}  // namespace

constinit const KernelTable kScalarKernels = MakeTable();

}  // namespace hearth::kernels
