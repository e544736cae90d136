// Scales (and minimums) of the sub-blocks of a K-type block: whole numbers times a factor of the
// block, which are searched together.
//
// First every sub-block gets the scale that fits it best. The largest decides the factor. Then,
// in turns, each sub-block takes the whole numbers next to its own that leave the least error, and
// the factors are fitted to all codes (least squares).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/search/fit.h"

namespace hearth::kernels::search {

inline constexpr int kSuperBlock = 256;
// How often whole numbers and factors follow each other.
inline constexpr int kSuperRounds = 3;

using SuperValues = Values<kSuperBlock>;

inline int ClampToInt(float value, int low, int high) {
  return static_cast<int>(
      std::min(std::max(value, static_cast<float>(low)), static_cast<float>(high)));
}

// x ~ d * scales[s] * q - dmin * mins[s] in sub-block s; d and dmin are halves, for x.
template <int kSubs>
struct AffineSuper {
  uint16_t d = 0;
  uint16_t dmin = 0;
  std::array<int, kSubs> scales{};
  std::array<int, kSubs> mins{};
  float error = std::numeric_limits<float>::infinity();
};

template <int kSubs>
class AffineSuperFit {
 public:
  static constexpr int kSize = kSuperBlock / kSubs;

  // Codes 0 .. levels; scales and minimums 0 .. most.
  AffineSuperFit(const SuperValues& values, int levels, int most)
      : values_(values), range_{0, static_cast<float>(levels)}, most_(most) {}

  AffineSuper<kSubs> Fit() {
    float scale = 0, min = 0;
    std::array<Affine, kSubs> fits;
    for (int s = 0; s < kSubs; ++s) {
      fits[Index(s)] =
          FitAffine<kSize>(X(s), W(s), static_cast<int>(range_.high), MinRule::kAtMostZero);
      scale = std::max(scale, fits[Index(s)].scale);
      min = std::max(min, -fits[Index(s)].min);
    }
    const auto most = static_cast<float>(most_);
    SetFactors(scale / most, min / most);
    AffineSuper<kSubs> best;
    for (int round = 0; round < kSuperRounds; ++round) {
      current_.error = 0;
      for (int s = 0; s < kSubs; ++s) {
        if (round == 0) {
          ChooseNear(s, fits[Index(s)].scale * InverseOf(d_),
                     -fits[Index(s)].min * InverseOf(dmin_));
        } else {
          ChooseAround(s);
        }
      }
      if (!(current_.error < best.error)) break;
      best = current_;
      if (!RefitFactors()) break;
    }
    return best;
  }

  float ScaleOf(const AffineSuper<kSubs>& fit, int s) const {
    return values_.Kept(fit.d) * static_cast<float>(fit.scales[Index(s)]);
  }
  float MinOf(const AffineSuper<kSubs>& fit, int s) const {
    return -values_.Kept(fit.dmin) * static_cast<float>(fit.mins[Index(s)]);
  }
  const float* X(int s) const { return values_.x + s * kSize; }

 private:
  static size_t Index(int s) { return static_cast<size_t>(s); }
  const float* W(int s) const { return values_.w + s * kSize; }

  void SetFactors(float d, float dmin) {
    current_.d = values_.Stored(d);
    current_.dmin = values_.Stored(dmin);
    d_ = values_.Kept(current_.d);
    dmin_ = values_.Kept(current_.dmin);
  }

  // The whole numbers on both sides of what was wished for.
  void ChooseNear(int s, float scale, float min) {
    const int low_scale = ClampToInt(std::floor(scale), 0, most_);
    const int low_min = ClampToInt(std::floor(min), 0, most_);
    Choose(s, low_scale, low_scale + 1, low_min, low_min + 1);
  }
  void ChooseAround(int s) {
    const int scale = current_.scales[Index(s)], min = current_.mins[Index(s)];
    Choose(s, scale - 1, scale + 1, min - 1, min + 1);
  }
  void Choose(int s, int first_scale, int last_scale, int first_min, int last_min) {
    float best_error = std::numeric_limits<float>::infinity();
    int best_scale = 0, best_min = 0;
    for (int scale = std::max(first_scale, 0); scale <= std::min(last_scale, most_); ++scale) {
      for (int min = std::max(first_min, 0); min <= std::min(last_min, most_); ++min) {
        const Affine fit = {d_ * static_cast<float>(scale), -dmin_ * static_cast<float>(min)};
        const float error = ErrorOf<kSize>(X(s), W(s), fit, range_);
        if (!(error < best_error)) continue;
        best_error = error;
        best_scale = scale;
        best_min = min;
      }
    }
    current_.scales[Index(s)] = best_scale;
    current_.mins[Index(s)] = best_min;
    current_.error += best_error;
  }

  // Both factors for all codes as they are; false where that changes nothing.
  bool RefitFactors() {
    // x ~ d * a - dmin * b.
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int s = 0; s < kSubs; ++s) {
      const auto scale = static_cast<float>(current_.scales[Index(s)]);
      const double b = current_.mins[Index(s)];
      const float min = -dmin_ * static_cast<float>(current_.mins[Index(s)]);
      const float inverse = InverseOf(d_ * scale);
      double w1 = 0, wa = 0, waa = 0, wx = 0, wxa = 0;
      for (int i = 0; i < kSize; ++i) {
        const float a = scale * range_((X(s)[i] - min) * inverse);
        const float w = W(s)[i], x = X(s)[i];
        w1 += w;
        wa += w * a;
        waa += w * a * a;
        wx += w * x;
        wxa += w * x * a;
      }
      aa += waa;
      ab += wa * b;
      bb += w1 * b * b;
      xa += wxa;
      xb += wx * b;
    }
    const double determinant = aa * bb - ab * ab;
    if (!(aa > 0)) return false;
    const uint16_t d_before = current_.d, dmin_before = current_.dmin;
    if (bb == 0) {
      SetFactors(static_cast<float>(xa / aa), 0);
    } else {
      if (!(determinant > 1e-7 * aa * bb)) return false;
      const double d = (xa * bb - xb * ab) / determinant;
      const double dmin = (xa * ab - xb * aa) / determinant;
      if (!(d > 0 && dmin > 0)) return false;
      SetFactors(static_cast<float>(d), static_cast<float>(dmin));
    }
    return current_.d != d_before || current_.dmin != dmin_before;
  }

  const SuperValues& values_;
  const CodeRange range_;
  const int most_;
  AffineSuper<kSubs> current_;
  float d_ = 0;  // what the halves are for x
  float dmin_ = 0;
};

// x ~ d * scales[s] * q in sub-block s; d is a half, for x.
template <int kSubs>
struct SymmetricSuper {
  uint16_t d = 0;
  std::array<int, kSubs> scales{};
  float error = std::numeric_limits<float>::infinity();
};

template <int kSubs, typename CodeOf>
class SymmetricSuperFit {
 public:
  static constexpr int kSize = kSuperBlock / kSubs;

  // Codes as FitScale has them; scales -most - 1 .. most.
  SymmetricSuperFit(const SuperValues& values, const ScaleSearch& search, const CodeOf& code_of,
                    int most)
      : values_(values), search_(search), code_of_(code_of), most_(most) {}

  SymmetricSuper<kSubs> Fit() {
    std::array<float, kSubs> scales;
    float extreme = 0;
    for (int s = 0; s < kSubs; ++s) {
      float& scale = scales[Index(s)];
      scale = FitScale<kSize>(X(s), W(s), search_, code_of_);
      if (std::abs(scale) > std::abs(extreme)) extreme = scale;
    }
    SetFactor(extreme / static_cast<float>(-most_ - 1));
    SymmetricSuper<kSubs> best;
    for (int round = 0; round < kSuperRounds; ++round) {
      current_.error = 0;
      for (int s = 0; s < kSubs; ++s) {
        if (round == 0) {
          const float wished = std::floor(scales[Index(s)] * InverseOf(d_));
          const int low = ClampToInt(wished, -most_ - 1, most_);
          Choose(s, low, low + 1);
        } else {
          Choose(s, current_.scales[Index(s)] - 1, current_.scales[Index(s)] + 1);
        }
      }
      if (!(current_.error < best.error)) break;
      best = current_;
      if (!RefitFactor()) break;
    }
    return best;
  }

  float ScaleOf(const SymmetricSuper<kSubs>& fit, int s) const {
    return values_.Kept(fit.d) * static_cast<float>(fit.scales[Index(s)]);
  }
  const float* X(int s) const { return values_.x + s * kSize; }

 private:
  static size_t Index(int s) { return static_cast<size_t>(s); }
  const float* W(int s) const { return values_.w + s * kSize; }

  void SetFactor(float d) {
    current_.d = values_.Stored(d);
    d_ = values_.Kept(current_.d);
  }

  void Choose(int s, int first, int last) {
    float best_error = std::numeric_limits<float>::infinity();
    int best = 0;
    for (int scale = std::max(first, -most_ - 1); scale <= std::min(last, most_); ++scale) {
      const float error = ErrorOf<kSize>(X(s), W(s), {d_ * static_cast<float>(scale), 0}, code_of_);
      if (!(error < best_error)) continue;
      best_error = error;
      best = scale;
    }
    current_.scales[Index(s)] = best;
    current_.error += best_error;
  }

  // The factor for all codes as they are; false where that changes nothing.
  bool RefitFactor() {
    double xa = 0, aa = 0;
    for (int s = 0; s < kSubs; ++s) {
      const auto scale = static_cast<float>(current_.scales[Index(s)]);
      const ScaleSums sums = SumCodes<kSize>(X(s), W(s), InverseOf(d_ * scale), code_of_);
      xa += scale * sums.xq;
      aa += scale * scale * sums.qq;
    }
    if (!(aa > 0)) return false;
    const uint16_t before = current_.d;
    SetFactor(static_cast<float>(xa / aa));
    return current_.d != before;
  }

  const SuperValues& values_;
  const ScaleSearch search_;
  const CodeOf code_of_;
  const int most_;
  SymmetricSuper<kSubs> current_;
  float d_ = 0;  // what the half is for x
};

}  // namespace hearth::kernels::search
