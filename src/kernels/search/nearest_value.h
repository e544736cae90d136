// The nearest of a few values that are not evenly spaced.
#pragma once

#include <cstdint>

#include "kernels/search/fit.h"
#include "kernels/weight_tables.h"

namespace hearth::kernels::search {

// kCount ascending values; the nearest is found by counting the midpoints below a number.
template <int kCount>
class NearestValue {
 public:
  template <typename ValueAt>
  constexpr explicit NearestValue(const ValueAt& value_at) : first_(value_at(0)) {
    for (int i = 0; i + 1 < kCount; ++i) {
      const float low = value_at(i), high = value_at(i + 1);
      midpoints_[i] = (low + high) / 2;
      steps_[i] = high - low;
    }
  }

  // The nearest value itself, and which one it is.
  float operator()(float number) const {
    float value = first_;
    for (int i = 0; i + 1 < kCount; ++i) value += number > midpoints_[i] ? steps_[i] : 0.0f;
    return value;
  }
  int IndexOf(float number) const {
    int index = 0;
    for (int i = 0; i + 1 < kCount; ++i) index += number > midpoints_[i] ? 1 : 0;
    return index;
  }

 private:
  float first_;
  float midpoints_[kCount - 1] = {};
  float steps_[kCount - 1] = {};
};

inline constexpr NearestValue<16> kIq4Nearest([](int i) {
  return static_cast<float>(kIq4NlValues[i]);
});

// The 15 numbers of doubled FP4 (there are two zeros): index 7 is zero.
inline constexpr NearestValue<15> kMxfp4Nearest([](int i) {
  return static_cast<float>(i < 7 ? kMxfp4DoubledValues[15 - i] : kMxfp4DoubledValues[i - 7]);
});

// Where scales of IQ4_NL's and IQ4_XS's values are looked for.
inline constexpr float kIq4Ends[] = {-127, 113};
inline constexpr ScaleSearch kIq4Search = {kIq4Ends, 2, 7, 4};

}  // namespace hearth::kernels::search
