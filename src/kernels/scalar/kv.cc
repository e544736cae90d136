// The scalar table's kernels for coded keys and values of the KV cache.
#include "kernels/scalar/kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/fp8.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

float HalfAt(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return HalfToFloat(half);
}

// The largest magnitude of n >= 1 floats as bits, which are ordered like it, with NaN on top.
uint32_t LargestBits(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = BitsFromFloat(x[i]) & 0x7fffffff;
    if (bits > largest) largest = bits;
  }
  return largest;
}

int32_t CodeOf(KvKeys keys, const std::byte* block, int64_t token, int64_t i, int64_t head_dim) {
  const KeyBlockLayout layout{keys, head_dim};
  const auto byte = std::to_integer<int32_t>(block[layout.ComponentAt(token, i)]);
  if (keys == KvKeys::kInt8) return byte;
  return i % 2 == 0 ? byte & 15 : byte >> 4;
}

int32_t NearestCode(float code, float most_code) {
  return static_cast<int32_t>(std::nearbyint(std::min(std::max(code, 0.0f), most_code)));
}

KeyCodeSums SumsOfKeyCodes(const KeyCodesToTry& a) noexcept {
  KeyCodeSums sums;
  for (int64_t i = 0; i < a.n; ++i) {
    const float unit = std::nearbyint((a.x[i] - a.least) * a.units);
    const int32_t code = NearestCode((unit - a.zero) * a.inverse, a.most_code);
    sums.codes += code;
    sums.squares += code * code;
    sums.units += static_cast<int32_t>(unit);
    sums.products += code * static_cast<int32_t>(unit);
  }
  return sums;
}

}  // namespace

KeyRange ReferenceKeyRange(const float* x, int64_t n, int32_t most_code) noexcept {
  float least = x[0], largest = x[0];
  for (int64_t i = 1; i < n; ++i) {
    if (x[i] < least) least = x[i];
    if (x[i] > largest) largest = x[i];
  }
  const KeyRange whole = RangeOfKey(least, largest, LargestBits(x, n), most_code);
  if (most_code > kMostNearestCode) return whole;
  return NearestRangeOfKey(x, n, least, largest, whole, SumsOfKeyCodes);
}

void ReferenceKeyCodes(const float* x, int64_t n, const KeyRange& range, uint8_t* out) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    const float code = range.inverse == 0 ? 0.0f : (x[i] - range.zero_value) * range.inverse;
    out[i] = static_cast<uint8_t>(NearestCode(code, range.most_code));
  }
}

uint16_t ReferenceToFp8(const float* x, int64_t n, uint8_t* out) noexcept {
  const ValueRange range = RangeOfValue(LargestBits(x, n));
  for (int64_t i = 0; i < n; ++i) {
    out[i] = range.inverse == 0 ? uint8_t{0} : FloatToFp8(x[i] * range.inverse);
  }
  return range.scale;
}

template <KvKeys keys>
void ReferenceCodedScores(const AttentionScoresArgs& a) noexcept {
  const KeyBlockLayout layout{keys, a.head_dim};
  for (int64_t i = 0; i < a.queries; ++i) {
    const float* q = a.q + i * a.q_stride;
    for (int64_t j = 0; j < a.count; ++j) {
      const int64_t token = (a.first + j) % KeyBlockLayout::kTokens;
      const std::byte* block = a.keys + (a.first + j) / KeyBlockLayout::kTokens * layout.bytes();
      double sum = 0;
      for (int64_t d = 0; d < a.head_dim; ++d) {
        const double scale = HalfAt(block + layout.ScaleAt(token, d));
        const double zero = HalfAt(block + layout.ZeroAt(token, d));
        sum += q[d] * (zero + scale * CodeOf(keys, block, token, d, a.head_dim));
      }
      a.scores[i * a.score_stride + j] = static_cast<float>(sum);
    }
  }
}
template void ReferenceCodedScores<KvKeys::kInt8>(const AttentionScoresArgs&) noexcept;
template void ReferenceCodedScores<KvKeys::kInt4>(const AttentionScoresArgs&) noexcept;

// Rounds after every position, as all tables do: positions may come in any number of calls.
void ReferenceFp8Values(const AttentionValuesArgs& a) noexcept {
  for (int64_t i = 0; i < a.queries; ++i) {
    for (int64_t j = 0; j < a.count; ++j) {
      const double weight = double{a.weights[i * a.weight_stride + j]} *
                            HalfAt(a.scales + j * KeyBlockLayout::kHalfBytes);
      const std::byte* value = a.values + j * a.head_dim;
      for (int64_t d = 0; d < a.head_dim; ++d) {
        float& out = a.out[i * a.out_stride + d];
        out = static_cast<float>(out + weight * Fp8ToFloat(std::to_integer<uint8_t>(value[d])));
      }
    }
  }
}

}  // namespace hearth::kernels
