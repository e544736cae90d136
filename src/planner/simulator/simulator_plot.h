// Speed by memory as a picture, as PowerInfer-2 has it in Figure 9.
#pragma once

#include <string>
#include <vector>

#include "planner/simulator/simulator_ffn.h"

namespace hearth {

struct SimPoint {
  SimPipeline pipeline = SimPipeline::kCluster;
  double memory_gb = 0;  // 10^9 bytes
  double tok_s = 0;
};

// SVG: a curve per pipeline. `points` is not empty; a pipeline's follow each other.
std::string PlotSimulation(const std::string& title, const std::vector<SimPoint>& points);

}  // namespace hearth
