#include "pass/math/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hearth {
namespace {

// The (fractional) pair whose wave turns `rotations` times over the original context
// (YaRN, Peng et al. 2023, §3.2).
double PairWithRotations(const RopeSpec& rope, double rotations) {
  return static_cast<double>(rope.dims) *
         std::log(static_cast<double>(rope.original_context) / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rope.base));
}

// Share of interpolation for each pair: 0 leaves a frequency alone, 1 divides it by the factor.
double YarnShare(const RopeSpec& rope, double pair) {
  double low = PairWithRotations(rope, rope.yarn_beta_fast);
  double high = PairWithRotations(rope, rope.yarn_beta_slow);
  if (rope.yarn_whole_ramp) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(0.0, low);
  high = std::min(static_cast<double>(rope.dims) - 1, high);
  if (high == low) high += 0.001;  // a step instead of a division by zero
  return std::clamp((pair - low) / (high - low), 0.0, 1.0);
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeSpec& rope, std::span<const float> factors) {
  std::vector<double> out(static_cast<size_t>(rope.dims / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto pair = static_cast<double>(i);
    double frequency = std::pow(rope.base, -2 * pair / static_cast<double>(rope.dims));
    if (rope.scaling == RopeScalingKind::kLinear) frequency /= rope.factor;
    if (rope.scaling == RopeScalingKind::kYarn) {
      const double share = YarnShare(rope, pair);
      frequency *= (1 - share) + share / rope.factor;
    }
    if (!factors.empty()) frequency /= static_cast<double>(factors[i]);
    out[i] = frequency;
  }
  return out;
}

}  // namespace hearth
