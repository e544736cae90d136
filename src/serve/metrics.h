// What the server counted, for /metrics.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// A model and what it counted.
struct ModelState {
  std::string label;  // its name, where there may be several; empty: the only one
  api::Stats stats;
};

// What a server of several models counts of them.
struct ModelCounts {
  uint64_t program_bytes = 0;  // of the memory limit, what no model takes
  uint64_t moving_bytes = 0;   // of models that are being loaded or unloaded
  int64_t waiting = 0;         // requests that wait for their model
  int64_t loads = 0;
  int64_t failed_loads = 0;
  int64_t unloads = 0;
};

// The models that are loaded now.
struct ModelsState {
  std::vector<ModelState> models;
  uint64_t memory_limit_bytes = 0;  // of all of them together
  uint64_t resident_bytes = 0;
  std::optional<ModelCounts> counts;  // nothing: there is one model for good
};

// Thread-safe.
class Metrics {
 public:
  void CountResponse(const std::string& endpoint, int status);
  void AddTimeToFirstToken(double seconds);
  void AddTimeBetweenTokens(double seconds);
  void AddConnections(int change);

  // The text format of Prometheus, version 0.0.4, with what the models counted.
  std::string Text(const ModelsState& state) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> responses_;
  Histogram first_token_;
  Histogram between_tokens_;
  int connections_ = 0;
};

}  // namespace hearth::serve
