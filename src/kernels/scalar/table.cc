// The scalar table: plain loops that say what every kernel means. It runs everywhere and is the
// oracle of the tests, so sums are in double and operations are in the order of their formulas.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/scalar/kv.h"
#include "kernels/scalar/rows.h"
#include "kernels/scalar/tiles.h"
#include "kernels/tables.h"
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
void MatMul(const MatMulArgs& a) noexcept {
  for (int64_t t = 0; t < a.tokens; ++t) {
    for (int64_t r = a.row_begin; r < a.row_end; ++r) {
      const std::byte* w = a.weights + static_cast<size_t>(r) * a.row_bytes;
      const float* x = a.x + t * a.x_stride;
      double sum = 0;
      for (int64_t i = 0; i < a.k; ++i) sum += double{Weight::Load(w + i * Weight::kBytes)} * x[i];
      a.out[t * a.out_stride + r - a.row_begin] = static_cast<float>(sum);
    }
  }
}

// The float operations are part of the contract (kernel_table.h), so no double here.
void QuantizeCodes(const float* x, BlockQ8* out) {
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
    out->minus_8_sum -= 8 * code;
    if (i < 16) out->minus_8_sum_of_first -= 8 * code;
  }
}

void QuantizeQ8(const float* x, int64_t n, BlockQ8* out, int64_t stride) noexcept {
  for (int64_t i = 0; i < n; i += 32, out += stride) {
    QuantizeCodes(x + i, out);
    out->sum = out->scale * (-0.125f * static_cast<float>(out->minus_8_sum));
  }
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
    case FfnActivation::kThresholdedSilu: {
      const double silu = g / (1.0 + std::exp(-double{g}));
      return std::abs(silu) > double{threshold} ? static_cast<float>(silu * u) : 0.0f;
    }
    case FfnActivation::kGelu: {
      // (1 + tanh(z)) / 2 as a sigmoid: 1 + tanh(z) loses all its digits far below 0.
      const double z = 0.79788456080286536 * (g + 0.044715 * double{g} * g * g);
      return static_cast<float>(g / (1.0 + std::exp(-2 * z)) * u);
    }
    case FfnActivation::kGeluErf:
      return static_cast<float>(0.5 * g * std::erfc(-double{g} * 0.70710678118654752) * u);
    case FfnActivation::kClampedSwiglu: {
      const double most = double{std::min(g, threshold)};
      const double factor = double{std::clamp(u, -threshold, threshold)} + 1;
      return static_cast<float>(most / (1.0 + std::exp(-1.702 * most)) * factor);
    }
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

void AttentionWeights(const AttentionWeightsArgs& a) noexcept {
  for (int64_t i = 0; i < a.queries; ++i) {
    float* scores = a.scores + i * a.score_stride;
    float* out = a.out + i * a.out_stride;
    const float max = std::max(a.max[i], *std::max_element(scores, scores + a.count));
    const double scale = std::exp(double{a.max[i]} - max);
    double sum = a.sum[i] * scale;
    for (int64_t d = 0; d < a.head_dim; ++d) out[d] = static_cast<float>(out[d] * scale);
    for (int64_t j = 0; j < a.count; ++j) {
      scores[j] = static_cast<float>(std::exp(double{scores[j]} - max));
      sum += scores[j];
    }
    a.max[i] = max;
    a.sum[i] = static_cast<float>(sum);
  }
}

template <class Weight>
void AttentionScores(const AttentionScoresArgs& a) noexcept {
  constexpr int64_t kBlock = KvLayout::kKeyBlock;
  for (int64_t i = 0; i < a.queries; ++i) {
    for (int64_t j = 0; j < a.count; ++j) {
      const int64_t block = (a.first + j) / kBlock, token = (a.first + j) % kBlock;
      double sum = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) {
        const std::byte* key =
            a.keys + ((block * a.head_dim + d) * kBlock + token) * Weight::kBytes;
        sum += double{a.q[i * a.q_stride + d]} * Weight::Load(key);
      }
      a.scores[i * a.score_stride + j] = static_cast<float>(sum);
    }
  }
}

// Rounds after every position, as all tables do: positions may come in any number of calls.
template <class Weight>
void AttentionValues(const AttentionValuesArgs& a) noexcept {
  for (int64_t i = 0; i < a.queries; ++i) {
    for (int64_t j = 0; j < a.count; ++j) {
      const double weight = a.weights[i * a.weight_stride + j];
      const std::byte* value = a.values + j * a.head_dim * Weight::kBytes;
      for (int64_t d = 0; d < a.head_dim; ++d) {
        float& out = a.out[i * a.out_stride + d];
        out = static_cast<float>(out + weight * Weight::Load(value + d * Weight::kBytes));
      }
    }
  }
}

// One product at a time: what plain code without vectors can do at best.
int64_t ProbeInt8(int64_t rounds) noexcept {
  constexpr int kSums = 8;  // enough to hide the latency of a multiplication
  int32_t sums[kSums] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    int32_t factor = 3;
    for (int32_t& sum : sums) {
      asm volatile("" : "+r"(factor));  // unknown to the compiler from here on
      sum += factor * factor;
      asm volatile("" : "+r"(sum));
    }
  }
  return rounds * kSums;
}

// A multiplication and an addition of floats, not fused, each waiting for the one before.
int64_t ProbeFloat(int64_t rounds) noexcept {
  constexpr int kSums = 8;
  float sums[kSums] = {1, 2, 3, 4, 5, 6, 7, 8};  // apart, or one would do for all
  for (int64_t round = 0; round < rounds; ++round) {
    for (float& sum : sums) sum = sum * 0.5f + 1.0f;
  }
  asm volatile("" ::"m"(sums));  // they are wanted
  return rounds * kSums * 2;
}

uint64_t ProbeRead(const std::byte* p, int64_t bytes) noexcept {
  uint64_t sum = 0;
  for (int64_t i = 0; i < bytes; i += 8) sum ^= LoadAs<uint64_t>(p + i);
  return sum;
}

constexpr KernelTable MakeTable() {
  KernelTable t{};
  t.isa = "scalar";
  t.matmul[static_cast<int>(DType::kF32)] = MatMul<F32Weight>;
  t.matmul[static_cast<int>(DType::kF16)] = MatMul<F16Weight>;
  t.matmul[static_cast<int>(DType::kBF16)] = MatMul<BF16Weight>;
  SetReferenceTiles(t);
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
  t.ffn_activation[static_cast<int>(FfnActivation::kThresholdedSilu)] =
      ActivateFfn<FfnActivation::kThresholdedSilu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kGelu)] = ActivateFfn<FfnActivation::kGelu>;
  t.ffn_activation[static_cast<int>(FfnActivation::kGeluErf)] =
      ActivateFfn<FfnActivation::kGeluErf>;
  t.ffn_activation[static_cast<int>(FfnActivation::kClampedSwiglu)] =
      ActivateFfn<FfnActivation::kClampedSwiglu>;
  t.add = Add;
  t.scaled_add = ScaledAdd;
  t.kv_encoders.to_half = ToHalf;
  t.attn_scores[static_cast<int>(KvKeys::kF32)] = AttentionScores<F32Weight>;
  t.attn_scores[static_cast<int>(KvKeys::kF16)] = AttentionScores<F16Weight>;
  t.attn_weights = AttentionWeights;
  t.attn_values[static_cast<int>(KvValues::kF32)] = AttentionValues<F32Weight>;
  t.attn_values[static_cast<int>(KvValues::kF16)] = AttentionValues<F16Weight>;
  SetReferenceKv(t);
  t.probe_int8 = ProbeInt8;
  t.probe_float = ProbeFloat;
  t.probe_read = ProbeRead;
  return t;
}

}  // namespace

constinit const KernelTable kScalarKernels = MakeTable();

}  // namespace hearth::kernels
