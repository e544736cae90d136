// What the server counted, for /metrics.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "hearth/hearth.hpp"

namespace hearth::serve {

// Seconds, in buckets whose upper bounds are fixed.
class Histogram {
 public:
  static constexpr std::array<double, 16> kBounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

  void Add(double seconds);
  // As Prometheus reads it, with HELP and TYPE.
  std::string Text(const std::string& name, const std::string& help) const;

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_ = {};
  double sum_ = 0;
};

// Thread-safe.
class Metrics {
 public:
  void CountResponse(const std::string& endpoint, int status);
  void AddTimeToFirstToken(double seconds);
  void AddTimeBetweenTokens(double seconds);
  void AddConnections(int change);

  // The text format of Prometheus, version 0.0.4, with what the model counted.
  std::string Text(const api::ModelInfo& info, const api::Stats& stats) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> responses_;
  Histogram first_token_;
  Histogram between_tokens_;
  int connections_ = 0;
};

}  // namespace hearth::serve
