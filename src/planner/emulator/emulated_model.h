// A model that is to run on an emulated machine (emulated_machine.h), and which unit has what of
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/emulator/emulated_machine.h"
#include "prepare/shapes/shapes.h"
#include "tensor/dtype.h"

namespace hearth {

// Sizes; all layers are alike and have one FFN.
struct EmulatedModel {
  std::string name;
  int64_t num_layers = 0;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t neurons = 0;           // of an FFN
  uint64_t attention_bytes = 0;  // of a layer, with norms
  uint64_t predictor_bytes = 0;  // of a layer
  uint64_t neuron_bytes = 0;
  uint64_t output_bytes = 0;
  uint64_t embedding_bytes = 0;  // looked up by row, on the host
  uint64_t kv_bytes = 0;         // of a layer and a token
  double bytes_per_weight = 0;

  uint64_t ffn_bytes() const { return neuron_bytes * static_cast<uint64_t>(neurons); }  // a layer's
};

// Throws Error(kUnsupported) for a mixture of experts.
EmulatedModel EmulatedModelOf(const ModelShape& shape, DType quant);

// How a model is shared between host and device, step by step from llama.cpp to P1 (Figure 15).
enum class EmulatedSystem : uint8_t {
  kLayers,        // whole layers on the device, every weight multiplied: llama.cpp's -ngl
  kSparseLayers,  // the same, and of FFNs only the listed neurons: +PO
  kRandom,        // neurons of every FFN on both sides, chosen without looking: +Engine
  kPlaced,        // the hottest ones, as P1's program places them: +Policy
};
inline constexpr EmulatedSystem kEmulatedSystems[] = {
    EmulatedSystem::kLayers, EmulatedSystem::kSparseLayers, EmulatedSystem::kRandom,
    EmulatedSystem::kPlaced};
const char* EmulatedSystemName(EmulatedSystem system);  // "layers", "sparse", "random", "placed"
inline bool ListsNeurons(EmulatedSystem system) { return system != EmulatedSystem::kLayers; }

struct EmulatedBudgets {
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;
  int64_t context = 0;  // tokens whose keys and values the host has
};

// Where everything lies. What neither unit has room for is on flash.
struct EmulatedPlacement {
  EmulatedSystem system = EmulatedSystem::kPlaced;
  int64_t dense_layers = 0;  // the first ones, whose attention and predictors are on the device
  bool output_on_device = false;
  std::vector<int64_t> device_neurons;  // by layer
  std::vector<int64_t> host_neurons;    // by layer, the next ones; the others are on flash
  uint64_t flash_bytes = 0;             // of kLayers: what every token reads of dense layers

  bool is_dense_there(int64_t layer) const { return layer < dense_layers; }
};

// `rates`: how often each neuron of an FFN is listed per token, descending. kPlaced tries how many
// layers have attention on the device, places neurons by P1's program in what is left, and takes
// the fastest by expectation. Throws Error(kOutOfBudget), naming what does not fit, where attention
// and output have no room on both units together.
EmulatedPlacement PlaceEmulated(const EmulatedMachine& machine, const EmulatedModel& model,
                                const EmulatedBudgets& budgets, EmulatedSystem system,
                                const std::vector<double>& rates);

}  // namespace hearth
