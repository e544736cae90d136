// What was measured, and what can be said of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hearth::load {

// Times in seconds; all of them are kept (8 bytes each), so that every quantile is exact.
class Samples {
 public:
  void Add(double seconds);
  void AddAll(const Samples& other);

  size_t count() const { return values_.size(); }
  // 0 where there is none.
  double mean() const { return values_.empty() ? 0 : sum_ / static_cast<double>(count()); }
  double max() const;
  // The smallest value that at least this share of all does not exceed; 0 where there is none.
  double Quantile(double share) const;

  // How many lie in each bucket: up to 1 ms, then five buckets to a decade, evenly in logarithms,
  // up to 1,000 s, and more than that.
  static constexpr int kBucketsPerDecade = 5;
  static constexpr int kDecades = 6;
  static constexpr size_t kBuckets = kBucketsPerDecade * kDecades + 2;
  std::array<uint64_t, kBuckets> Histogram() const;
  // Seconds; of the last one there is none.
  static double UpperBound(size_t bucket);

 private:
  std::vector<double> values_;
  double sum_ = 0;
};

// A quantity over time.
struct Point {
  double seconds = 0;
  double value = 0;
};

struct Trend {
  size_t points = 0;
  double first = 0, last = 0, least = 0, most = 0;
  double slope_per_second = 0;  // of the least-squares line; 0 for fewer than two points
  double span_seconds = 0;      // from the first point to the last

  // Of the line, over all of that.
  double change() const { return slope_per_second * span_seconds; }
};

// Of the points from `from_seconds` on.
Trend TrendOf(const std::vector<Point>& points, double from_seconds);

}  // namespace hearth::load
