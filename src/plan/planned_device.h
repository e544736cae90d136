// What an execution plan puts on a device beside the processor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hearth {

struct PlannedDevice {
  uint64_t memory_bytes = 0;               // that it may take
  std::map<std::string, uint64_t> ledger;  // as the device's will be: "neurons" and "scratch"
  // By layer, how many of its FFN's neurons, the first ones; at least one layer has some.
  std::vector<int64_t> layer_neurons;
};

}  // namespace hearth
