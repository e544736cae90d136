// Numbers that stand for a list of measurements.
#pragma once

#include <span>
#include <utility>
#include <vector>

namespace hearth {

// The value that `share` (0 to 1) of the values are not above, interpolated between neighbours.
// 0 for no values.
double Percentile(std::vector<double> values, double share);

inline double Median(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

double Mean(std::span<const double> values);  // 0 for no values

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};
Spread SpreadOf(const std::vector<double>& values);

}  // namespace hearth
