// Q2_K to Q6_K: which bits of a block hold a code, after super_fit.h has found the scales.
#include "kernels/search/super_blocks.h"

#include "kernels/search/super_fit.h"
#include "kernels/weight_tables.h"

namespace hearth::kernels::search {
namespace {

// Calls put(i, code) for all 256 weights.
template <int kSubs, typename Put>
void PutCodes(const AffineSuperFit<kSubs>& search, const AffineSuper<kSubs>& fit, CodeRange range,
              const Put& put) {
  constexpr int kSize = AffineSuperFit<kSubs>::kSize;
  for (int s = 0; s < kSubs; ++s) {
    const float min = search.MinOf(fit, s);
    const float inverse = InverseOf(search.ScaleOf(fit, s));
    for (int i = 0; i < kSize; ++i) {
      put(s * kSize + i, static_cast<int>(RoundCode((search.X(s)[i] - min) * inverse, range)));
    }
  }
}

template <typename Put>
void PutCodes(const SymmetricSuperFit& search, const SymmetricSuper& fit, int half,
              const Put& put) {
  const CodeRange range = {static_cast<float>(-half), static_cast<float>(half - 1)};
  for (int s = 0; s < SymmetricSuperFit::kSubs; ++s) {
    const float inverse = InverseOf(search.ScaleOf(fit, s));
    for (int i = 0; i < SymmetricSuperFit::kSize; ++i) {
      const float code = RoundCode(search.X(s)[i] * inverse, range);
      put(s * SymmetricSuperFit::kSize + i, static_cast<int>(code) + half);
    }
  }
}

void Or(uint8_t& byte, int bits) { byte = static_cast<uint8_t>(byte | bits); }

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
  AffineSuperFit<8> search(values, levels, kMost);
  const AffineSuper<8> fit = search.Fit();
  block.d = fit.d;
  block.dmin = fit.dmin;
  uint8_t scales[8], mins[8];
  for (size_t s = 0; s < 8; ++s) {
    scales[s] = static_cast<uint8_t>(fit.scales[s]);
    mins[s] = static_cast<uint8_t>(fit.mins[s]);
  }
  PackScalesAndMins(scales, mins, block.scales);
  PutCodes(search, fit, {0, static_cast<float>(levels)}, [&block](int i, int code) {
    const int sub = i / 32, byte = i % 32;
    Or(block.qs[32 * (sub / 2) + byte], (code & 15) << (4 * (sub % 2)));
    if constexpr (requires { block.qh; }) Or(block.qh[byte], (code >> 4) << sub);
  });
}

}  // namespace

void Encode(const float* in, const float* importance, BlockQ2_K& block) {
  constexpr int kMost = 15, kLevels = 3;
  block = {};
  SuperValues values;
  values.Load(in, importance, kMost * kMaxHalf);
  if (values.is_zero) return;
  AffineSuperFit<16> search(values, kLevels, kMost);
  const AffineSuper<16> fit = search.Fit();
  block.d = fit.d;
  block.dmin = fit.dmin;
  for (size_t s = 0; s < 16; ++s) {
    block.scales[s] = static_cast<uint8_t>(fit.scales[s] | fit.mins[s] << 4);
  }
  PutCodes(search, fit, {0, kLevels}, [&block](int i, int code) {
    const Place at(i);
    Or(block.qs[32 * at.half + at.byte], code << (2 * at.plane));
  });
}

void Encode(const float* in, const float* importance, BlockQ3_K& block) {
  constexpr int kMost = 31, kHalf = 4;
  block = {};
  SuperValues values;
  values.Load(in, importance, kMost * kHalf * kMaxHalf);
  SymmetricSuper fit;
  if (!values.is_zero) {
    SymmetricSuperFit search(values, kHalf, kMost);
    fit = search.Fit();
    block.d = fit.d;
    PutCodes(search, fit, kHalf, [&block](int i, int code) {
      const Place at(i);
      Or(block.qs[32 * at.half + at.byte], (code & 3) << (2 * at.plane));
      Or(block.hmask[at.byte], (code >> 2) << (4 * at.half + at.plane));
    });
  }
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
  SymmetricSuperFit search(values, kHalf, kMost);
  const SymmetricSuper fit = search.Fit();
  block.d = fit.d;
  for (size_t s = 0; s < 16; ++s) block.scales[s] = static_cast<int8_t>(fit.scales[s]);
  PutCodes(search, fit, kHalf, [&block](int i, int code) {
    const Place at(i);
    Or(block.ql[64 * at.half + 32 * (at.plane % 2) + at.byte], (code & 15) << (4 * (at.plane / 2)));
    Or(block.qh[32 * at.half + at.byte], (code >> 4) << (2 * at.plane));
  });
}

}  // namespace hearth::kernels::search
