// What a device takes of a token's work where it has matrices of a model that is not packed
// (plan/matrix_placement.h): what is left to the processor, and how long it waits.
#pragma once

#include <vector>

#include "plan/planned_device.h"
#include "planner/cost/access_record.h"
#include "planner/cost/cost_model.h"

namespace hearth {

struct MatrixShare {
  PlannedDevice planned;
  // Per token: attention and output, which nothing is computed beside; and by layer its FFNs, with
  // what sending and fetching takes; 0: none there.
  double dense_seconds = 0;
  std::vector<double> ffn_seconds;
  // By layer, which share of the experts that its router chooses the processor computes; of a dense
  // layer whether it computes its FFN.
  std::vector<double> experts_here;
};

// What the processor is asked for: choices of experts without those on the device.
AccessRecord BesideMatrices(const AccessRecord& record, const MatrixPlacement& placement);

// Adds to a token's cost what it waits for the device.
void AddMatrices(const MatrixShare& share, TokenCost& cost);

}  // namespace hearth
