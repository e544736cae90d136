#include "load/samples.h"

#include <algorithm>
#include <cmath>

namespace hearth::load {

void Samples::Add(double seconds) {
  values_.push_back(seconds);
  sum_ += seconds;
}

void Samples::AddAll(const Samples& other) {
  values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  sum_ += other.sum_;
}

double Samples::max() const {
  return values_.empty() ? 0 : *std::max_element(values_.begin(), values_.end());
}

double Samples::Quantile(double share) const {
  if (values_.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(count())));
  const size_t index = std::clamp<size_t>(rank, 1, count()) - 1;
  std::vector<double> values = values_;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

double Samples::UpperBound(size_t bucket) {
  return 1e-3 * std::pow(10, static_cast<double>(bucket) / kBucketsPerDecade);
}

std::array<uint64_t, Samples::kBuckets> Samples::Histogram() const {
  std::array<uint64_t, kBuckets> counts = {};
  for (const double value : values_) {
    size_t bucket = 0;
    while (bucket + 1 < kBuckets && value > UpperBound(bucket)) ++bucket;
    ++counts[bucket];
  }
  return counts;
}

Trend TrendOf(const std::vector<Point>& points, double from_seconds) {
  Trend trend;
  double sum_t = 0, sum_v = 0;
  double begin = 0;
  for (const Point& point : points) {
    if (point.seconds < from_seconds) continue;
    if (trend.points == 0) {
      begin = point.seconds;
      trend.first = trend.least = trend.most = point.value;
    }
    ++trend.points;
    sum_t += point.seconds;
    sum_v += point.value;
    trend.last = point.value;
    trend.least = std::min(trend.least, point.value);
    trend.most = std::max(trend.most, point.value);
    trend.span_seconds = point.seconds - begin;
  }
  if (trend.points < 2) return trend;
  const double mean_t = sum_t / static_cast<double>(trend.points);
  const double mean_v = sum_v / static_cast<double>(trend.points);
  double covariance = 0, variance = 0;
  for (const Point& point : points) {
    if (point.seconds < from_seconds) continue;
    covariance += (point.seconds - mean_t) * (point.value - mean_v);
    variance += (point.seconds - mean_t) * (point.seconds - mean_t);
  }
  if (variance > 0) trend.slope_per_second = covariance / variance;
  return trend;
}

}  // namespace hearth::load
