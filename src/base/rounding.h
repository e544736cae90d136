// Whole units of sizes and counts.
#pragma once

namespace hearth {

// How many units of `unit` (above 0) hold `value`; no overflow where value + unit fits the type.
template <typename T>
constexpr T DivideUp(T value, T unit) {
  return (value + unit - 1) / unit;
}

// The next multiple of `unit`.
template <typename T>
constexpr T RoundUp(T value, T unit) {
  return DivideUp(value, unit) * unit;
}

}  // namespace hearth
