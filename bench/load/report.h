// What a run of the load generator found, for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/client.h"
#include "load/watch.h"
#include "load/workload.h"

namespace hearth::load {

struct Run {
  std::string url;
  WorkloadOptions workload;
  double seconds = 0;          // planned, or until it was interrupted
  double warm_up_seconds = 0;  // of them, not counted
  int64_t requests_per_connection = 0;
  std::vector<ClientResult> clients;
  int64_t unfinished = 0;  // requests that did not end in time after the window
  Sightings sightings;

  double counted_seconds() const { return seconds - warm_up_seconds; }
};

// All clients together.
ClientResult Total(const Run& run);

// docs/formats/schemas/load.schema.json.
nlohmann::ordered_json RunJson(const Run& run);

// Tables.
std::string RunText(const Run& run);

}  // namespace hearth::load
