// What an execution plan puts on a device beside the processor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/matrix_placement.h"

namespace hearth {

struct PlannedDevice {
  uint64_t memory_bytes = 0;               // that it may take
  std::map<std::string, uint64_t> ledger;  // as the device's will be: "neurons" of a packed model,
                                           // "matrices" where it has some, "scratch", and so on
  // By layer, how many of its FFN's neurons, the first ones; at least one layer has some.
  // Empty of a model that is not packed.
  std::vector<int64_t> layer_neurons;
  MatrixPlacement matrices;  // no layers where there are none
};

}  // namespace hearth
