// Counts of uses that fade, kept as logarithms. Internal to src/cache.
//
// A *level* is the logarithm of a count in steps of a part of an octave. Fading all counts of a
// layer alike keeps their order, so a level is stored as if the layer's clock, which counts the
// levels that all have lost, stood at 0 (level + clock), and changes only with a use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace hearth::cache {

// Of a key that was never used: a level below all others at any time.
inline constexpr int32_t kNeverUsed = std::numeric_limits<int32_t>::min() / 2;

// What levels become by a use.
class UseLevels {
 public:
  // Counts below the level `low` are none; none goes over `top`. Where a use of a count near `top`
  // is worth less than half a step, counts stay below it.
  UseLevels(int per_octave, int32_t low, int32_t top) : low_(low), top_(top) {
    for (int32_t level = low; level <= top; ++level) {
      const double count = std::exp2(static_cast<double>(level) / per_octave) + 1;
      const auto raised = static_cast<int32_t>(std::lround(per_octave * std::log2(count)));
      raised_.push_back(static_cast<int16_t>(std::min(top, raised)));
    }
  }

  int32_t Raised(int32_t level) const noexcept {
    return level < low_ ? 0 : raised_[static_cast<size_t>(std::min(level, top_) - low_)];
  }

 private:
  const int32_t low_, top_;
  std::vector<int16_t> raised_;  // by level - low_
};

}  // namespace hearth::cache
