// Q2_K to Q6_K and IQ4_XS: which bits of a block hold a code, after super_fit.h has found the
// scales.
#include "kernels/search/super_blocks.h"

#include "kernels/search/nearest_value.h"
#include "kernels/search/super_fit.h"
#include "kernels/weight_tables.h"

namespace hearth::kernels::search {
namespace {

// Q2_K, Q4_K and Q5_K: codes 0 .. levels, scales and minimums 0 .. most. Calls put(i, code) for all
// 256 weights.
template <int kSubs, typename Put>
AffineSuper<kSubs> EncodeAffine(const SuperValues& values, int levels, int most, const Put& put) {
  constexpr int kSize = AffineSuperFit<kSubs>::kSize;
  const CodeRange range = {0, static_cast<float>(levels)};
  AffineSuperFit<kSubs> search(values, levels, most);
  const AffineSuper<kSubs> fit = search.Fit();
  for (int s = 0; s < kSubs; ++s) {
    const float min = search.MinOf(fit, s);
    const float inverse = InverseOf(search.ScaleOf(fit, s));
    for (int i = 0; i < kSize; ++i) {
      put(s * kSize + i, static_cast<int>(range((search.X(s)[i] - min) * inverse)));
    }
  }
  return fit;
}

// Codes as FitScale has them, scales -most - 1 .. most. index_of(x / scale) is what is stored for a
// code, and handed to put(i, index) for all 256 weights.
template <int kSubs, typename CodeOf, typename IndexOf, typename Put>
SymmetricSuper<kSubs> EncodeSymmetric(SymmetricSuperFit<kSubs, CodeOf> search,
                                      const IndexOf& index_of, const Put& put) {
  constexpr int kSize = SymmetricSuperFit<kSubs, CodeOf>::kSize;
  const SymmetricSuper<kSubs> fit = search.Fit();
  for (int s = 0; s < kSubs; ++s) {
    const float inverse = InverseOf(search.ScaleOf(fit, s));
    for (int i = 0; i < kSize; ++i) put(s * kSize + i, index_of(search.X(s)[i] * inverse));
  }
  return fit;
}

void Or(uint8_t& byte, int bits) { byte = static_cast<uint8_t>(byte | bits); }

// Q3_K and Q6_K: codes -half .. half - 1, stored with half added. Calls put(i, code) for all 256
// weights.
template <typename Put>
SymmetricSuper<16> EncodeSixteenSubs(const SuperValues& values, int half, int most,
                                     const Put& put) {
  const CodeRange range = {static_cast<float>(-half), static_cast<float>(half - 1)};
  const float ends[] = {range.low, range.high};
  // With few codes it matters which end has the one more.
  const ScaleSearch scales = {ends, range.high < 16 ? 2 : 1, 8, 0.15f};
  return EncodeSymmetric(
      SymmetricSuperFit<16, CodeRange>(values, scales, range, most),
      [&](float x) { return static_cast<int>(range(x)) + half; }, put);
}

// Where weight i of a K type lies: in byte `i % 32` of the half it belongs to, as plane `plane`.
struct Place {
  explicit Place(int i) : half(i / 128), plane(i / 32 % 4), byte(i % 32) {}
  int half;
  int plane;
  int byte;
};

// Q4_K and Q5_K differ in the fifth bits alone.
template <typename Block>
void EncodeEightSubs(const float* in, const float* importance, int levels, Block& block) {
  constexpr int kMost = 63;
  block = {};
  SuperValues values;
  values.Load(in, importance, kMost * kMaxHalf);
  if (values.is_zero) return;
  const AffineSuper<8> fit = EncodeAffine<8>(values, levels, kMost, [&block](int i, int code) {
    const int sub = i / 32, byte = i % 32;
    Or(block.qs[32 * (sub / 2) + byte], (code & 15) << (4 * (sub % 2)));
    if constexpr (requires { block.qh; }) Or(block.qh[byte], (code >> 4) << sub);
  });
  block.d = fit.d;
  block.dmin = fit.dmin;
  uint8_t scales[8], mins[8];
  for (size_t s = 0; s < 8; ++s) {
    scales[s] = static_cast<uint8_t>(fit.scales[s]);
    mins[s] = static_cast<uint8_t>(fit.mins[s]);
  }
  PackScalesAndMins(scales, mins, block.scales);
}

}  // namespace

void Encode(const float* in, const float* importance, BlockQ2_K& block) {
  constexpr int kMost = 15, kLevels = 3;
  block = {};
  SuperValues values;
  values.Load(in, importance, kMost * kMaxHalf);
  if (values.is_zero) return;
  const AffineSuper<16> fit = EncodeAffine<16>(values, kLevels, kMost, [&block](int i, int code) {
    const Place at(i);
    Or(block.qs[32 * at.half + at.byte], code << (2 * at.plane));
  });
  block.d = fit.d;
  block.dmin = fit.dmin;
  for (size_t s = 0; s < 16; ++s) {
    block.scales[s] = static_cast<uint8_t>(fit.scales[s] | fit.mins[s] << 4);
  }
}

void Encode(const float* in, const float* importance, BlockQ3_K& block) {
  constexpr int kMost = 31, kHalf = 4;
  block = {};
  SuperValues values;
  values.Load(in, importance, kMost * kHalf * kMaxHalf);
  SymmetricSuper<16> fit;
  if (!values.is_zero) {
    fit = EncodeSixteenSubs(values, kHalf, kMost, [&block](int i, int code) {
      const Place at(i);
      Or(block.qs[32 * at.half + at.byte], (code & 3) << (2 * at.plane));
      Or(block.hmask[at.byte], (code >> 2) << (4 * at.half + at.plane));
    });
  }
  block.d = fit.d;
  for (int s = 0; s < 16; ++s) {
    const int scale = fit.scales[static_cast<size_t>(s)] + kMost + 1;
    Or(block.scales[s % 8], (scale & 15) << (4 * (s / 8)));
    Or(block.scales[8 + s % 4], (scale >> 4) << (2 * (s / 4)));
  }
}

void Encode(const float* in, const float* importance, BlockQ4_K& block) {
  EncodeEightSubs(in, importance, 15, block);
}
void Encode(const float* in, const float* importance, BlockQ5_K& block) {
  EncodeEightSubs(in, importance, 31, block);
}

void Encode(const float* in, const float* importance, BlockQ6_K& block) {
  constexpr int kMost = 127, kHalf = 32;
  block = {};
  SuperValues values;
  values.Load(in, importance, kMost * kHalf * kMaxHalf);
  if (values.is_zero) return;
  const SymmetricSuper<16> fit = EncodeSixteenSubs(values, kHalf, kMost, [&block](int i, int code) {
    const Place at(i);
    Or(block.ql[64 * at.half + 32 * (at.plane % 2) + at.byte], (code & 15) << (4 * (at.plane / 2)));
    Or(block.qh[32 * at.half + at.byte], (code >> 4) << (2 * at.plane));
  });
  block.d = fit.d;
  for (size_t s = 0; s < 16; ++s) block.scales[s] = static_cast<int8_t>(fit.scales[s]);
}

void Encode(const float* in, const float* importance, BlockIQ4_XS& block) {
  constexpr int kMost = 31;
  block = {};
  SuperValues values;
  values.Load(in, importance, 127 * kMaxHalf);
  if (values.is_zero) return;
  const SymmetricSuper<8> fit = EncodeSymmetric(
      SymmetricSuperFit<8, NearestValue<16>>(values, kIq4Search, kIq4Nearest, kMost),
      [](float x) { return kIq4Nearest.IndexOf(x); },
      [&block](int i, int code) {
        Or(block.qs[16 * (i / 32) + i % 16], code << (4 * (i / 16 % 2)));
      });
  block.d = fit.d;
  for (int s = 0; s < 8; ++s) {
    const int scale = fit.scales[static_cast<size_t>(s)] + kMost + 1;
    Or(block.scales_l[s / 2], (scale & 15) << (4 * (s % 2)));
    block.scales_h = static_cast<uint16_t>(block.scales_h | (scale >> 4) << (2 * s));
  }
}

}  // namespace hearth::kernels::search
