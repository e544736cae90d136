// What `hearth simulate` prints.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "planner/simulator/simulator.h"
#include "sparsity/access_sequence.h"
#include "sparsity/profile.h"

namespace hearth::cli {

// What the run is made of, read once.
struct SimInputs {
  SimDevice device;
  SimSystem system = SimSystem::kHearth;
  SimModel model;
  std::optional<ModelProfile> profile;
  std::optional<AccessSequence> trace;
};

struct SimulatedPoint {
  SimPipeline pipeline = SimPipeline::kCluster;
  uint64_t memory_bytes = 0;
  double cache_share = 0;
  SimResult result;
};

// A table for people, and the document that simulate.schema.json describes.
std::string SimulationText(const SimInputs& inputs, const std::vector<SimulatedPoint>& points);
nlohmann::ordered_json SimulationJson(const SimInputs& inputs,
                                      const std::vector<SimulatedPoint>& points);

}  // namespace hearth::cli
